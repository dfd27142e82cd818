#include "verify/gradient_bytes.h"

#include <cmath>

namespace tessera {
namespace {

/// Returns the bytes of an element of a unit's gradient, as it is sent.
int64_t element_bytes(const ParameterUnit& unit, WireFormat wire) {
  if (unit.dtype == DType::f64) return dtype_size(DType::f64);
  return dtype_size(wire == WireFormat::bf16 ? DType::bf16 : DType::f32);
}

/// Returns the number of ranks that sum a unit's gradient, each of which has an addend.
int ranks_of_sum(const Mesh& mesh, const ParameterUnit& unit) {
  int ranks = 1;
  for (const Axis axis : mesh.axes_of(unit.gradient_distribution.view())) {
    const bool sums = unit.gradient_distribution.on(axis).placement == Placement::partial;
    if (sums) ranks *= mesh.size(axis);
  }
  return ranks;
}

}  // namespace

bool GradientBytes::equal() const { return std::abs(counted - expected) <= 1e-9 * expected; }

double gradient_bytes_of_rank(const MeshRank& mesh_rank, const ParameterList& parameters,
                              const StateShard& shard, WireFormat wire) {
  double bytes = 0;
  for (size_t i = 0; i < parameters.units().size(); ++i) {
    const ParameterUnit& unit = parameters.units()[i];
    if (!unit.has_gradients() || !unit.on_stage(mesh_rank.mesh.stage(mesh_rank.rank))) continue;
    // The reductions of frames have left this rank a piece, which fewer ranks sum.
    const int reduced = mesh_rank.mesh.group_ranks(shard.stored(i).gradients.axes);
    const int ranks = ranks_of_sum(mesh_rank.mesh, unit) / reduced;
    const int cut = mesh_rank.mesh.group_ranks(shard.even_cut(i).axes);
    const bool keeps_piece = cut > reduced;
    // What is gathered after the sum is not rounded if it is part of a piece.
    const int gathered = keeps_piece ? ranks * reduced / cut - 1 : ranks - 1;
    const WireFormat gathered_wire = keeps_piece ? WireFormat::fp32 : wire;
    const auto element_sum = static_cast<double>((ranks - 1) * element_bytes(unit, wire) +
                                                 gathered * element_bytes(unit, gathered_wire));
    bytes += element_sum / ranks * static_cast<double>(unit.elements) / reduced;
    // The stages that have the unit sum what is theirs of it by an all-reduce.
    const auto stages = static_cast<double>(unit.stages.size());
    bytes += 2 * (stages - 1) / stages *
             static_cast<double>(unit.elements * element_bytes(unit, WireFormat::fp32)) / cut;
  }
  return bytes;
}

}  // namespace tessera
