// The XLA bindings for NVIDIA GPUs: handlers with the operands and results of sample_ffi.cc and
// aggregate_ffi.cc. With JGS_EMULATED it is plain C++, whose loops run on the host, for tests.
#if defined(JGS_EMULATED)
#include "host_launcher.h"
#else
#include "cuda_launcher.h"
#endif

#include <cstdint>
#include <string>
#include <vector>

#include "device_aggregate.h"
#include "device_sample.h"
#include "ffi.h"
#include "sample_call.h"

namespace jgs {

template <>
constexpr bool kIsContext<Launcher> = true;

namespace {

std::string Sample(Launcher launcher, AnyWords keys, AnyLongs indptr, AnyInts indices,
                   AnyLongs, AnyLongs, AnyFloats edge_weight, AnyLongs, AnyShorts, AnyLongs,
                   AnyLongs, AnyInts seeds, AnyLongs time, AnyLongs excluded,
                   ffi::RemainingRets rets, Numbers draws, Numbers relation_draws,
                   Numbers edge_capacity, Numbers source_capacity, bool replace, bool weighted,
                   bool latest, int64_t, int64_t half_life, bool relabel_inputs,
                   int64_t first_hop, int64_t) {
  const size_t num_hops = draws.size(), num_results = 8 * num_hops + 4;
  const int64_t num_seeds = Size(seeds), width = num_seeds == 0 ? 1 : seeds.dimensions().back();
  const int64_t num_batches = num_seeds / width;
  GraphView graph = ViewGraph(indptr, indices);
  graph.edge_weight = Size(edge_weight) == 0 ? nullptr : edge_weight.typed_data();
  if (num_seeds == 0 || num_hops == 0 || graph.num_nodes < 0 ||
      Size(keys) != 2 * num_batches || edge_capacity.size() != num_hops ||
      source_capacity.size() != num_hops || rets.size() % num_results != 0 ||
      (graph.edge_weight != nullptr && Size(edge_weight) != graph.num_edges)) {
    return "jgs_sample_uniform: arguments do not have the expected sizes";
  }
  if (weighted || latest || half_life != 0 || relation_draws.size() != 0 || Size(time) != 0 ||
      Size(excluded) != 0) {
    return "jgs_sample_uniform: draws must be uniform, among all edges of a row";
  }
  const int64_t groups = static_cast<int64_t>(rets.size() / num_results);
  for (int64_t batch = 0; batch < num_batches; ++batch) {
    Results results(rets, batch % groups * num_results, batch / groups, num_batches / groups);
    std::vector<Hop> hops(num_hops);
    std::vector<HopCounts> counts(num_hops);
    for (size_t h = 0; h < num_hops; ++h) {
      Hop& hop = hops[h];
      hop.fanout = draws[h];
      hop.edge_capacity = edge_capacity[h];
      hop.source_capacity = source_capacity[h];
      hop.indptr = results.Next<ffi::S32>(&hop.target_capacity);
      --hop.target_capacity;
      hop.indices = results.Next<ffi::S32>();
      counts[h].num_targets = results.Next<ffi::S32>();
      counts[h].num_sources = results.Next<ffi::S32>();
      counts[h].num_edges = results.Next<ffi::S32>();
      hop.edge_id = results.Next<ffi::S64>();
      hop.edge_weight = results.Next<ffi::F32>();
      results.Next<ffi::S16>();
      if (hop.target_capacity + hop.edge_capacity >= int64_t{1} << 30) {
        return "jgs_sample_uniform: a hop must have fewer than 2**30 targets and edges";
      }
      if (hop.edge_weight != nullptr && graph.edge_weight == nullptr && graph.num_edges != 0) {
        return "jgs_sample_uniform: the graph has no edge weights to return";
      }
    }
    int64_t num_inputs = 0;
    int32_t* const nodes = results.Next<ffi::S32>(&num_inputs);
    bool* const overflow = results.Next<ffi::PRED>();
    int32_t* const needed = results.Next<ffi::S32>();  // [2, num_hops]
    results.Next<ffi::S64>();
    if (!results.good()) return "jgs_sample_uniform: results do not have the expected types";
    for (size_t h = 0; h < num_hops; ++h) {
      counts[h].edges_needed = needed + h;
      counts[h].sources_needed = needed + num_hops + h;
    }
    SampleOnDevice(launcher,
                   {graph, keys.typed_data() + 2 * batch, first_hop,
                    Seeds{seeds.typed_data() + batch * width, width}, replace, relabel_inputs,
                    hops, counts, nodes, num_inputs, overflow});
  }
  return "";
}

DeviceBlock ViewBlock(const Floats& weight, const Ints& indptr, const Ints& indices,
                      const Int& num_targets, const Int& num_edges, int64_t num_rows) {
  const int64_t edges = Size(indices), weights = Size(weight);
  return {indptr.typed_data(),
          indices.typed_data(),
          weights == 0 ? nullptr : weight.typed_data(),
          num_targets.typed_data(),
          num_edges.typed_data(),
          Size(indptr) - 1,
          edges,
          num_rows,
          weights == 0 || edges == 0 ? 1 : weights / edges};
}

// Whether the shapes are those that aggregate_ffi.cc asks for.
bool Fits(const DeviceBlock& block, const Floats& weight, int64_t width, bool max,
          bool others) {
  const int64_t heads = block.num_heads;
  return others && block.target_capacity >= 0 && heads > 0 && width % heads == 0 &&
         (heads == 1 || !max) &&
         (block.weight == nullptr || Size(weight) == block.edge_capacity * heads);
}

std::string AggregateFfi(Launcher launcher, Matrix x, Floats weight, Ints indptr, Ints indices,
                         Int num_targets, Int num_edges, ffi::Result<Matrix> out,
                         ffi::Result<IntMatrix> argmax, int64_t reduce, int64_t) {
  const int64_t width = x.dimensions()[1];
  const auto block =
      ViewBlock(weight, indptr, indices, num_targets, num_edges, x.dimensions()[0]);
  const bool max = reduce == static_cast<int64_t>(Reduce::kMax);
  const bool shapes = HasShape(*out, block.target_capacity, width) &&
                      HasShape(*argmax, max ? block.target_capacity : 0, width);
  if (!Fits(block, weight, width, max, shapes)) return kShapes;
  AggregateOnDevice(launcher, block, static_cast<Reduce>(reduce), x.typed_data(), width,
                    out->typed_data(), argmax->typed_data());
  return "";
}

std::string AggregateGradFfi(Launcher launcher, Matrix grad_out, IntMatrix argmax,
                             Floats weight, Ints indptr, Ints indices, Int num_targets,
                             Int num_edges, ffi::Result<Matrix> grad_x, int64_t reduce,
                             int64_t) {
  const int64_t width = grad_out.dimensions()[1];
  const auto block =
      ViewBlock(weight, indptr, indices, num_targets, num_edges, grad_x->dimensions()[0]);
  const bool max = reduce == static_cast<int64_t>(Reduce::kMax);
  const bool shapes = HasShape(grad_out, block.target_capacity, width) &&
                      HasShape(*grad_x, block.num_rows, width) &&
                      HasShape(argmax, max ? block.target_capacity : 0, width);
  if (!Fits(block, weight, width, max, shapes)) return kShapes;
  AggregateGradOnDevice(launcher, block, static_cast<Reduce>(reduce), grad_out.typed_data(),
                        argmax.typed_data(), width, grad_x->typed_data());
  return "";
}

std::string AggregateGradWeightFfi(Launcher launcher, Matrix grad_out, IntMatrix argmax,
                                   Matrix x, Floats weight, Ints indptr, Ints indices,
                                   Int num_targets, Int num_edges,
                                   ffi::Result<Floats> grad_weight, int64_t reduce, int64_t) {
  const int64_t width = x.dimensions()[1];
  const auto block =
      ViewBlock(weight, indptr, indices, num_targets, num_edges, x.dimensions()[0]);
  const bool max = reduce == static_cast<int64_t>(Reduce::kMax);
  const bool shapes = HasShape(grad_out, block.target_capacity, width) &&
                      HasShape(argmax, max ? block.target_capacity : 0, width) &&
                      Size(*grad_weight) == block.edge_capacity * block.num_heads;
  if (!Fits(block, weight, width, max, shapes)) return kShapes;
  AggregateGradWeightOnDevice(launcher, block, static_cast<Reduce>(reduce),
                              grad_out.typed_data(), argmax.typed_data(), x.typed_data(), width,
                              grad_weight->typed_data());
  return "";
}

}  // namespace

JGS_HANDLER(JgsDeviceSampleUniform, Sample, "draws", "relation_draws", "edge_capacity",
            "source_capacity", "replace", "weighted", "latest", "window", "half_life",
            "relabel_inputs", "first_hop", "num_threads");
JGS_HANDLER(JgsDeviceAggregate, AggregateFfi, "reduce", "num_threads");
JGS_HANDLER(JgsDeviceAggregateGrad, AggregateGradFfi, "reduce", "num_threads");
JGS_HANDLER(JgsDeviceAggregateGradWeight, AggregateGradWeightFfi, "reduce", "num_threads");

}  // namespace jgs
