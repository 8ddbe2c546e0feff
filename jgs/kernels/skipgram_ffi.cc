// The XLA binding of skipgram.h: it turns buffers into plain arguments.
#include "skipgram.h"

#include "ffi.h"

namespace jgs {
namespace {

std::string SkipgramFfi(ffi::ThreadPool pool, Matrix rows, IntMatrix nodes, IntMatrix windows,
                        Float rate, ffi::Result<Matrix> gradient, ffi::Result<Matrix> sums,
                        int64_t num_runs, int64_t num_nodes, float weight,
                        int64_t num_threads) {
  WalkPairs p;
  p.num_walks = nodes.dimensions()[0];
  p.num_places = nodes.dimensions()[1];
  p.num_runs = num_runs;
  const int64_t others = rows.dimensions()[0] - 2 * p.num_walks * p.num_places;
  p.num_negatives = p.num_walks > 0 && num_runs > 0 ? others / (p.num_walks * num_runs) : 0;
  p.width = rows.dimensions()[1] - 1;
  p.num_nodes = static_cast<int32_t>(num_nodes);
  p.weight = weight;
  p.rate = *rate.typed_data();
  const bool good = nodes.dimensions() == windows.dimensions() &&
                    rows.dimensions() == gradient->dimensions() && p.num_places > 0 &&
                    p.width > 0 && p.num_negatives > 0 &&
                    others == p.num_walks * num_runs * p.num_negatives &&
                    sums->dimensions()[0] == p.num_walks && sums->dimensions()[1] == 2;
  if (!good) return kShapes;
  p.nodes = nodes.typed_data();
  p.windows = windows.typed_data();
  p.rows = rows.typed_data();
  Skipgram(PoolExecutor(pool, num_threads), p, gradient->typed_data(), sums->typed_data());
  return "";
}

}  // namespace

JGS_HANDLER(JgsSkipgram, SkipgramFfi, "num_runs", "num_nodes", "weight", "num_threads");

}  // namespace jgs
