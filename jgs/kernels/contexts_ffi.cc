// The XLA bindings of contexts.h. Their Python side is jgs/sampling/contexts/hops.py and
// jgs/sampling/algorithms/context.py.
#include <algorithm>
#include <cstdint>
#include <string>

#include "contexts.h"
#include "ffi.h"

namespace jgs {
namespace {

using LongMatrix = ffi::Buffer<ffi::S64, 2>;

std::string Append(ffi::ThreadPool pool, IntMatrix nodes, IntMatrix hops, IntMatrix parent,
                   LongMatrix edge, Ints begin, Ints end, Ints indptr, Ints neighbors, Longs ids,
                   ffi::Result<IntMatrix> new_nodes, ffi::Result<IntMatrix> new_hops,
                   ffi::Result<IntMatrix> new_parent, ffi::Result<LongMatrix> new_edge,
                   ffi::Result<Ints> new_begin, ffi::Result<Ints> new_end, int64_t hop,
                   int64_t num_nodes, int64_t num_threads) {
  const int64_t num = nodes.dimensions()[0], room = nodes.dimensions()[1];
  const int64_t rows = Size(indptr) - 1;
  bool good = num > 0 && rows >= 0 && rows % num == 0 && Size(neighbors) == Size(ids);
  for (const auto& matrix : {&hops, &parent}) good = good && HasShape(*matrix, num, room);
  for (const auto& result : {&new_nodes, &new_hops, &new_parent}) {
    good = good && HasShape(**result, num, room);
  }
  good = good && HasShape(edge, num, room) && HasShape(*new_edge, num, room);
  for (const int64_t size : {Size(begin), Size(end), Size(*new_begin), Size(*new_end)}) {
    good = good && size == num;
  }
  if (!good) return kShapes;
  const auto copy = [](const auto& from, auto& to) {
    std::copy_n(from.typed_data(), Size(from), to->typed_data());
  };
  copy(nodes, new_nodes);
  copy(hops, new_hops);
  copy(parent, new_parent);
  copy(edge, new_edge);
  copy(begin, new_begin);
  copy(end, new_end);
  const Contexts contexts{num,
                          room,
                          new_nodes->typed_data(),
                          new_hops->typed_data(),
                          new_parent->typed_data(),
                          new_edge->typed_data(),
                          new_begin->typed_data(),
                          new_end->typed_data()};
  const FrontierRows drawn{indptr.typed_data(), neighbors.typed_data(), ids.typed_data(),
                           rows / num, Size(neighbors)};
  return AppendToContexts(contexts, drawn, static_cast<int32_t>(hop), num_nodes,
                          PoolExecutor(pool, num_threads));
}

std::string ByAge(ffi::ThreadPool pool, IntMatrix nodes, IntMatrix hops, IntMatrix parent,
                  LongMatrix edge, Ints end, Longs time, ffi::Result<IntMatrix> new_nodes,
                  ffi::Result<IntMatrix> new_hops, ffi::Result<IntMatrix> new_parent,
                  ffi::Result<LongMatrix> new_edge, int64_t num_threads) {
  const int64_t num = nodes.dimensions()[0], room = nodes.dimensions()[1];
  const int64_t size = new_nodes->dimensions()[1];
  bool good = Size(end) == num && size <= room && HasShape(edge, num, room);
  for (const auto& matrix : {&hops, &parent}) good = good && HasShape(*matrix, num, room);
  for (const auto& result : {&new_nodes, &new_hops, &new_parent}) {
    good = good && HasShape(**result, num, size);
  }
  if (!good || !HasShape(*new_edge, num, size)) return kShapes;
  const Contexts from{num,
                      room,
                      nodes.typed_data(),
                      hops.typed_data(),
                      parent.typed_data(),
                      edge.typed_data(),
                      nullptr,
                      end.typed_data()};
  const Contexts to{num,
                    size,
                    new_nodes->typed_data(),
                    new_hops->typed_data(),
                    new_parent->typed_data(),
                    new_edge->typed_data(),
                    nullptr,
                    nullptr};
  return SortByAge(from, time.typed_data(), Size(time), to, PoolExecutor(pool, num_threads));
}

std::string Tree(ffi::ThreadPool pool, IntMatrix nodes, IntMatrix parent,
                 ffi::Result<IntMatrix> place, ffi::Result<Ints> indptr,
                 ffi::Result<Ints> children, int64_t num_nodes, int64_t num_threads) {
  const int64_t num = nodes.dimensions()[0], size = nodes.dimensions()[1];
  const bool good = HasShape(parent, num, size) && HasShape(*place, num, size) &&
                    num * size <= INT32_MAX && Size(*indptr) == num * size + 1 &&
                    Size(*children) == num * size;
  if (!good) return kShapes;
  ContextTrees(nodes.typed_data(), parent.typed_data(), num, size, num_nodes,
               place->typed_data(), indptr->typed_data(), children->typed_data(),
               PoolExecutor(pool, num_threads));
  return "";
}

}  // namespace

JGS_HANDLER(JgsContextAppend, Append, "hop", "num_nodes", "num_threads");
JGS_HANDLER(JgsContextByAge, ByAge, "num_threads");
JGS_HANDLER(JgsContextTree, Tree, "num_nodes", "num_threads");

}  // namespace jgs
