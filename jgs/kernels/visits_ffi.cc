// The XLA binding of MostVisited. Its Python side is jgs/sampling/algorithms/walks/visits.py.
#include <cstdint>
#include <string>
#include <vector>

#include "ffi.h"
#include "visits.h"

namespace jgs {
namespace {

namespace ffi = xla::ffi;

// `groups` has for each VisitGroup in turn its size, its number of bounds, and the bounds.
ffi::Error Visits(ffi::ThreadPool pool, ffi::BufferR1<ffi::U32> key, ffi::BufferR1<ffi::S64> indptr,
                  ffi::BufferR1<ffi::S32> indices, ffi::BufferR1<ffi::S16> edge_type,
                  ffi::BufferR1<ffi::S32> targets, ffi::BufferR1<ffi::S64> excluded,
                  ffi::ResultBufferR2<ffi::S32> nodes,
                  ffi::ResultBufferR2<ffi::S32> counts, int64_t num_walks, int64_t length,
                  int64_t stop, ffi::Span<const int64_t> path,
                  ffi::Span<const int64_t> groups, int64_t num_threads) {
  return Guarded([&]() -> std::string {
    std::vector<VisitGroup> every;
    size_t width = 0;
    for (const int64_t* at = groups.begin(); groups.end() - at >= 2;) {
      const VisitGroup group{at[0], at + 2, at[1]};
      if (group.num_bounds < 0 || group.num_bounds > groups.end() - group.bounds) break;
      every.push_back(group);
      width += static_cast<size_t>(group.size);
      at = group.bounds + group.num_bounds;
    }
    GraphView graph{};
    graph.indptr = indptr.typed_data();
    graph.num_nodes = static_cast<int64_t>(indptr.element_count()) - 1;
    graph.indices = indices.typed_data();
    graph.num_edges = static_cast<int64_t>(indices.element_count());
    const size_t num_targets = targets.element_count();
    if (key.element_count() != 2 || graph.num_nodes < 0 || num_walks < 1 || length < 1 ||
        (path.size() > 0 && edge_type.element_count() != indices.element_count()) ||
        nodes->element_count() != num_targets * width ||
        counts->element_count() != num_targets * width) {
      return "jgs_visits: arguments do not have the expected sizes";
    }
    std::string error;
    const Seeds of{nullptr, 0, nullptr, excluded.typed_data(),
                   static_cast<int64_t>(excluded.element_count())};
    const Limits limits = LimitsOf(of, nullptr, graph.num_edges, nullptr, -1, error);
    if (!error.empty()) return error;
    const VisitOptions options{num_walks,
                               length,
                               static_cast<uint64_t>(stop),
                               edge_type.typed_data(),
                               path.begin(),
                               static_cast<int64_t>(path.size()),
                               every.data(),
                               static_cast<int64_t>(every.size()),
                               limits};
    return MostVisited(graph, {{key.typed_data()[0], key.typed_data()[1]}},
                       targets.typed_data(), static_cast<int64_t>(num_targets), options,
                       nodes->typed_data(), counts->typed_data(),
                       PoolExecutor(pool, num_threads));
  });
}

}  // namespace
}  // namespace jgs

namespace ffi = xla::ffi;

XLA_FFI_DEFINE_HANDLER_SYMBOL(JgsVisits, jgs::Visits,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::BufferR1<ffi::U32>>()  // key
                                  .Arg<ffi::BufferR1<ffi::S64>>()  // indptr
                                  .Arg<ffi::BufferR1<ffi::S32>>()  // indices
                                  .Arg<ffi::BufferR1<ffi::S16>>()  // edge_type
                                  .Arg<ffi::BufferR1<ffi::S32>>()  // targets
                                  .Arg<ffi::BufferR1<ffi::S64>>()  // excluded
                                  .Ret<ffi::BufferR2<ffi::S32>>()  // nodes
                                  .Ret<ffi::BufferR2<ffi::S32>>()  // counts
                                  .Attr<int64_t>("num_walks")
                                  .Attr<int64_t>("length")
                                  .Attr<int64_t>("stop")
                                  .Attr<ffi::Span<const int64_t>>("path")
                                  .Attr<ffi::Span<const int64_t>>("groups")
                                  .Attr<int64_t>("num_threads"));
