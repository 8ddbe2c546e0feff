// The XLA binding of SampleWalks. Its Python side is jgs/sampling/algorithms/walks/walk.py.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "ffi.h"
#include "walk.h"

namespace jgs {
namespace {

namespace ffi = xla::ffi;

// Walks from roots [..., B] with keys [..., 2]: nodes [..., B, L+1] and lengths [..., B].
// `second` has the fields of SecondOrder, or is empty.
ffi::Error Walk(ffi::ThreadPool pool, ffi::Buffer<ffi::U32> keys, ffi::Buffer<ffi::S64> indptr,
                ffi::Buffer<ffi::S32> indices, ffi::Buffer<ffi::S64> weight_prefix,
                ffi::Buffer<ffi::S64> stretches, ffi::Buffer<ffi::S64> edge_time,
                ffi::Buffer<ffi::S64> sums, ffi::Buffer<ffi::S64> by_source,
                ffi::Buffer<ffi::S64> weight_by_source,
                ffi::Buffer<ffi::S32> roots, ffi::Buffer<ffi::S64> time,
                ffi::Buffer<ffi::S64> excluded,
                ffi::ResultBuffer<ffi::S32> nodes, ffi::ResultBuffer<ffi::S32> lengths,
                int64_t length, bool weighted, int64_t restart, int64_t stop,
                ffi::Span<const int64_t> relations, ffi::Span<const int64_t> second,
                bool causal, int64_t window, int64_t latest, int64_t half_life,
                int64_t num_threads) {
  return Guarded([&]() -> std::string {
    const int64_t num_roots = static_cast<int64_t>(roots.element_count());
    const int64_t per_batch = num_roots > 0 ? roots.dimensions().back() : 1;
    const int64_t num_batches = num_roots / std::max<int64_t>(per_batch, 1);
    const bool timed = time.element_count() != 0, indexed = by_source.element_count() != 0;
    const size_t num_edges = indices.element_count(), num_nodes = indptr.element_count() - 1;
    const auto most = std::max_element(relations.begin(), relations.end());
    GraphView graph{};
    graph.indptr = indptr.typed_data();
    graph.num_nodes = static_cast<int64_t>(num_nodes);
    graph.indices = indices.typed_data();
    graph.num_edges = static_cast<int64_t>(num_edges);
    graph.weight_prefix = weighted ? weight_prefix.typed_data() : nullptr;
    if (indptr.element_count() < 1 || length < 1 ||
        keys.element_count() != 2 * static_cast<size_t>(num_batches) ||
        (weighted && weight_prefix.element_count() != num_edges) ||
        (relations.size() > 0 && stretches.element_count() != 2 * num_nodes * (1 + *most)) ||
        (second.size() != 0 && second.size() != 6) ||
        (timed && (time.element_count() != roots.element_count() ||
                   edge_time.element_count() != num_edges)) ||
        (num_batches > 0 && excluded.element_count() % num_batches != 0) ||
        (num_roots > 0 && !timed &&
         (causal || window != -1 || latest != -1 || half_life != 0)) ||
        half_life < 0 || (half_life != 0 && sums.element_count() != num_edges) ||
        (indexed && by_source.element_count() != num_edges) ||
        (weight_by_source.element_count() != 0 &&
         weight_by_source.element_count() != num_edges) ||
        (second.size() != 0 && (excluded.element_count() != 0 ||
                                (timed && !indexed && num_edges > 0))) ||
        // Points of edges back are found among weights by source.
        (indexed && weighted && second.size() != 0 && second[3] != 0 &&
         weight_by_source.element_count() == 0) ||
        nodes->element_count() != static_cast<size_t>(num_roots * (length + 1)) ||
        lengths->element_count() != static_cast<size_t>(num_roots)) {
      return "jgs_walk: arguments do not have the expected sizes";
    }
    const auto limit = [](int64_t value) { return static_cast<uint64_t>(value); };
    SecondOrder rule{};
    if (second.size() != 0) {
      rule = {limit(second[0]), limit(second[1]), limit(second[2]),
              second[3] != 0,   limit(second[4]), limit(second[5])};
    }
    WalkOptions of_all{length,
                       limit(restart),
                       limit(stop),
                       relations.size() > 0 ? stretches.typed_data() : nullptr,
                       relations.begin(),
                       static_cast<int64_t>(relations.size()),
                       second.size() != 0 ? &rule : nullptr,
                       latest,
                       {},
                       causal,
                       {half_life, sums.typed_data(), edge_time.typed_data()},
                       indexed ? by_source.typed_data() : nullptr,
                       weight_by_source.element_count() != 0 ? weight_by_source.typed_data()
                                                             : nullptr};
    const int64_t num_excluded =
        static_cast<int64_t>(excluded.element_count()) / std::max<int64_t>(num_batches, 1);
    AdviseHugePages(nodes);
    std::vector<std::string> errors(num_batches);
    const auto one = [&](int64_t batch, const Executor& executor) {
      const Key key{{keys.typed_data()[2 * batch], keys.typed_data()[2 * batch + 1]}};
      const int64_t first = batch * per_batch;
      const Seeds seeds{roots.typed_data() + first, per_batch,
                        time.element_count() != 0 ? time.typed_data() + first : nullptr,
                        excluded.typed_data() + batch * num_excluded, num_excluded};
      WalkOptions options = of_all;
      options.limits =
          LimitsOf(seeds, edge_time.typed_data(), graph.num_edges, graph.weight_prefix, window,
                   errors[batch]);
      if (errors[batch].empty()) {
        errors[batch] = SampleWalks(graph, key, seeds, options,
                                    nodes->typed_data() + first * (length + 1),
                                    lengths->typed_data() + first, executor);
      }
      if (num_batches > 1 && !errors[batch].empty()) {
        errors[batch] = "batch " + std::to_string(batch) + ": " + errors[batch];
      }
    };
    const Executor executor = PoolExecutor(pool, num_threads);
    if (num_batches >= executor.num_threads) {  // a thread for each batch: none waits
      ParallelFor(executor, num_batches, [&](int64_t batch) { one(batch, Executor{}); });
    } else {
      for (int64_t batch = 0; batch < num_batches; ++batch) one(batch, executor);
    }
    const auto is_error = [](const std::string& error) { return !error.empty(); };
    const auto first = std::find_if(errors.begin(), errors.end(), is_error);
    return first == errors.end() ? "" : *first;
  });
}

}  // namespace
}  // namespace jgs

XLA_FFI_DEFINE_HANDLER_SYMBOL(JgsWalk, jgs::Walk,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::U32>>()  // keys
                                  .Arg<xla::ffi::Buffer<xla::ffi::S64>>()  // indptr
                                  .Arg<xla::ffi::Buffer<xla::ffi::S32>>()  // indices
                                  .Arg<xla::ffi::Buffer<xla::ffi::S64>>()  // weight_prefix
                                  .Arg<xla::ffi::Buffer<xla::ffi::S64>>()  // stretches
                                  .Arg<xla::ffi::Buffer<xla::ffi::S64>>()  // edge_time
                                  .Arg<xla::ffi::Buffer<xla::ffi::S64>>()  // sums
                                  .Arg<xla::ffi::Buffer<xla::ffi::S64>>()  // by_source
                                  .Arg<xla::ffi::Buffer<xla::ffi::S64>>()  // weight_by_source
                                  .Arg<xla::ffi::Buffer<xla::ffi::S32>>()  // roots
                                  .Arg<xla::ffi::Buffer<xla::ffi::S64>>()  // time
                                  .Arg<xla::ffi::Buffer<xla::ffi::S64>>()  // excluded
                                  .Ret<xla::ffi::Buffer<xla::ffi::S32>>()  // nodes
                                  .Ret<xla::ffi::Buffer<xla::ffi::S32>>()  // lengths
                                  .Attr<int64_t>("length")
                                  .Attr<bool>("weighted")
                                  .Attr<int64_t>("restart")
                                  .Attr<int64_t>("stop")
                                  .Attr<xla::ffi::Span<const int64_t>>("relations")
                                  .Attr<xla::ffi::Span<const int64_t>>("second")
                                  .Attr<bool>("causal")
                                  .Attr<int64_t>("window")
                                  .Attr<int64_t>("latest")
                                  .Attr<int64_t>("half_life")
                                  .Attr<int64_t>("num_threads"));
