#include "state/muon_program.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "ops/collective/convert.h"
#include "ops/collective/shared_matrices.h"
#include "ops/elementwise/elementwise.h"
#include "ops/update/muon_measures.h"
#include "ops/update/muon_passes.h"
#include "ops/update/newton_schulz.h"
#include "program/view.h"
#include "state/matrix_shares.h"
#include "state/update_program.h"

// The update by Muon: momentum, Newton-Schulz, then the update of the weights. MuonWriter takes the
// matrices as parts, which are views of this rank's memory. If ranks do not share out the states, a
// part is a parameter. If they do, a rank goes chain by chain (see MatrixChain): first cut
// matrices, which their owners gather and orthogonalise, then its run of whole matrices. Parts of
// one distribution and element type form groups, which bound the memory of Newton-Schulz.

namespace tessera {
namespace {

/// A group with this many elements takes no more matrices. So many are enough for passes to run at
/// the memory's bandwidth and for small matrices to keep all threads busy. Orthogonalising takes
/// the memory of the group's elements twice.
constexpr int64_t kGroupElements = int64_t{1} << 24;

/// Consecutive elements of a parameter on this rank, which an update takes as one value.
struct MatrixPart {
  const ParameterSpec* spec = nullptr;
  int64_t offset = 0;  // the offset in this rank's piece of the parameter
  Shape shape;         // [rows, columns], [matrices, rows, columns], or [1, elements]
  Distribution distribution;
  std::string suffix;  // added to the parameter's name in the name of the value
};

/// Returns the distribution of a value made of matrices of a parameter. Its dim `dim` is split over
/// the ranks of the chain, into pieces of `sizes`. `type_of_value` maps each split of the parameter
/// to that of the value, whose dims and pieces may differ.
template <typename TypeOfValue>
Distribution chain_distribution(const Mesh& mesh, const ParameterSpec& spec,
                                const MatrixChain& chain, int dim, std::vector<int64_t> sizes,
                                TypeOfValue&& type_of_value) {
  const MeshView view = spec.distribution.view();
  Distribution distribution(view);
  for (const Axis axis : mesh.axes_of(view)) {
    const TypeOnAxis& type = spec.distribution.on(axis);
    if (!type.split()) distribution = distribution.with(axis, type);
  }
  for (int parameter_dim = 0; parameter_dim < spec.shape.rank(); ++parameter_dim) {
    for (const Axis axis : spec.distribution.order(parameter_dim)) {
      distribution = distribution.with(axis, type_of_value(spec.distribution.on(axis)));
    }
  }
  const TypeOnAxis own = sharded(dim, {.kind = PieceKind::flat, .sizes = std::move(sizes)});
  for (const Axis axis : chain.axes) distribution = distribution.with(axis, own);
  return distribution;
}

/// Returns the distribution of [matrices, rows, columns], of which each rank has its count.
Distribution whole_matrices(const Mesh& mesh, const ParameterSpec& spec, const MatrixChain& chain,
                            std::vector<int64_t> counts) {
  const int added_dims = 3 - spec.shape.rank();
  return chain_distribution(mesh, spec, chain, 0, std::move(counts), [=](TypeOnAxis type) {
    type.dim += added_dims;
    return type;
  });
}

int64_t elements_of_matrix(const ParameterSpec& spec) {
  return spec.piece_shape.dim(-2) * spec.piece_shape.dim(-1);
}

/// Returns the whole matrices of a chain that this rank has: one part for each run.
std::vector<MatrixPart> run_parts(const Mesh& mesh, std::span<const ParameterSpec> specs,
                                  const MatrixChain& chain) {
  std::vector<MatrixPart> parts;
  for (const MatrixChain::Run& run : chain.runs) {
    const ParameterSpec& spec = specs[run.parameter];
    parts.push_back({&spec,
                     run.first_matrix * elements_of_matrix(spec),
                     {run.count, spec.piece_shape.dim(-2), spec.piece_shape.dim(-1)},
                     whole_matrices(mesh, spec, chain, run.counts),
                     ""});
  }
  return parts;
}

/// Returns a cut matrix as its owner has it when it has received all pieces: [1, rows, columns].
MatrixPart cut_matrix(const Mesh& mesh, std::span<const ParameterSpec> specs,
                      const MatrixChain& chain, const MatrixChain::Cut& cut) {
  const ParameterSpec& spec = specs[cut.parameter];
  std::vector<int64_t> counts(cut.pieces.size());
  counts[static_cast<size_t>(cut.owner)] = 1;
  return {&spec,
          cut.matrix * elements_of_matrix(spec),
          {1, spec.piece_shape.dim(-2), spec.piece_shape.dim(-1)},
          whole_matrices(mesh, spec, chain, std::move(counts)),
          fmt::format("/{}", cut.matrix)};
}

/// Returns this rank's piece of a cut matrix: [1, elements].
MatrixPart cut_piece(const Mesh& mesh, std::span<const ParameterSpec> specs,
                     const MatrixChain& chain, const MatrixChain::Cut& cut) {
  const ParameterSpec& spec = specs[cut.parameter];
  std::vector<int64_t> sizes;
  for (const ElementRun& piece : cut.pieces) sizes.push_back(piece.length);
  const ElementRun& own = cut.pieces[static_cast<size_t>(chain.position)];
  // All elements of the matrix are in dim 1 of the value, so a split of rows or columns becomes a
  // split of dim 1. A split of the experts stays in dim 0.
  const int experts_dim = spec.shape.rank() == 3 ? 0 : -1;
  const Distribution distribution =
      chain_distribution(mesh, spec, chain, 1, std::move(sizes), [=](const TypeOnAxis& type) {
        return type.dim == experts_dim ? type : sharded(1, {.kind = PieceKind::flat});
      });
  return {&spec,
          cut.matrix * elements_of_matrix(spec) + own.begin,
          {1, own.length},
          distribution,
          fmt::format("/{}", cut.matrix)};
}

/// Matrices that the operations take together: they have one distribution and one element type.
struct MatrixGroup {
  Distribution unit_distribution;
  DType dtype;
  int dims;
  int64_t elements = 0;
  std::vector<MatrixPart> parts;

  bool takes(const MatrixPart& part, const Distribution& distribution) const {
    return unit_distribution == distribution && dtype == part.spec->dtype &&
           dims == part.shape.rank() && elements < kGroupElements;
  }
};

/// Matrices that were gathered on each rank, and their types on the axes that split them before.
struct WholeMatrices {
  Value value;
  std::vector<std::pair<Axis, TypeOnAxis>> splits;  // the innermost first
};

class MuonWriter {
 public:
  MuonWriter(Builder& builder, const MuonOperands& operands) : builder_(builder), muon_(operands) {}

  std::vector<Value> write() {
    std::vector<size_t> parameters;
    for (size_t i = 0; i < muon_.parameters.size(); ++i) {
      const bool by_muon = updated_by(muon_.config, muon_.parameters[i]) == OptimizerName::muon;
      if (by_muon && muon_.shard.holds(i)) parameters.push_back(i);
    }
    if (muon_.shard.sharing().axes.optimizer == 0) {
      std::vector<MatrixPart> parts;
      for (const size_t i : parameters) {
        const ParameterSpec& spec = muon_.parameters[i];
        parts.push_back({&spec, 0, spec.piece_shape, spec.distribution, ""});
      }
      write_groups(parts);
      return sums_by_distribution();
    }
    std::vector<Value> chain_measures;
    for (const MatrixChain& chain :
         matrix_chains(muon_.shard, muon_.parameters, parameters, muon_.config.muon_split)) {
      write_cuts(chain);
      write_groups(run_parts(mesh(), muon_.parameters, chain));
      if (measures_.empty()) measures_.push_back(no_measures(chain));
      const std::vector<Value> sums = sums_by_distribution();
      TESSERA_CHECK(sums.size() == 1, "measures of {} types in a chain", sums.size());
      chain_measures.push_back(sums[0]);
    }
    return chain_measures;
  }

 private:
  /// Appends the whole update of these parts, group by group.
  void write_groups(std::span<const MatrixPart> parts) {
    std::vector<MatrixGroup> groups;
    for (const MatrixPart& part : parts) {
      const Distribution& distribution = unit_of(*part.spec).distribution;
      auto group = std::ranges::find_if(
          groups, [&](const MatrixGroup& known) { return known.takes(part, distribution); });
      if (group == groups.end()) {
        group = groups.insert(group, {distribution, part.spec->dtype, part.shape.rank(), 0, {}});
      }
      group->elements += part.shape.elements();
      group->parts.push_back(part);
    }
    for (const MatrixGroup& group : groups) {
      write_update(group.parts, orthogonalised(group.parts, momenta_of(group.parts)));
    }
  }

  /// Appends the update of this rank's pieces of cut matrices, which their owners orthogonalise.
  void write_cuts(const MatrixChain& chain) {
    MatrixSharing sharing{.name = fmt::format("muon/{}", chains_written_++),
                          .axes = chain.axes,
                          .ranks = chain.ranks,
                          .position = chain.position,
                          .matrices = {}};
    std::vector<MatrixPart> pieces, own_parts;
    for (const MatrixChain::Cut& cut : chain.cuts) {
      if (cut.pieces[static_cast<size_t>(chain.position)].length == 0) continue;
      pieces.push_back(cut_piece(mesh(), muon_.parameters, chain, cut));
      const MatrixPart matrix = cut_matrix(mesh(), muon_.parameters, chain, cut);
      sharing.matrices.push_back(
          {matrix.shape, cut.pieces, cut.owner, matrix.distribution, pieces.back().distribution});
      if (cut.owner == chain.position) own_parts.push_back(matrix);
    }
    if (pieces.empty()) return;
    const std::vector<Value> updates = momenta_of(pieces);
    std::vector<Value> matrices = gather_at_owners(builder_, sharing, updates);
    std::vector<Value> own_matrices;
    std::ranges::copy_if(matrices, std::back_inserter(own_matrices),
                         [](Value value) { return bool{value}; });
    if (!own_matrices.empty()) own_matrices = orthogonalised(own_parts, own_matrices);
    return_to_pieces(builder_, sharing, own_matrices, updates);
    write_update(pieces, updates);
  }

  /// Appends the update of the momenta of these parts. Returns the values to orthogonalise.
  std::vector<Value> momenta_of(std::span<const MatrixPart> parts) {
    std::vector<MuonMomentum> momenta;
    for (const MatrixPart& part : parts) {
      momenta.push_back({view_of(part, states_of(part).gradient, "gradient:"),
                         view_of(part, states_of(part).first_moment, "first_moment:")});
    }
    return muon_momentum(builder_, in_mesh_view_of(parts, muon_.scale), momenta,
                         muon_.config.muon_momentum, parts.front().spec->dtype);
  }

  /// Returns this rank's pieces of the orthogonalised matrices. Adds their measures to measures_.
  std::vector<Value> orthogonalised(std::span<const MatrixPart> parts,
                                    const std::vector<Value>& momenta) {
    const auto pieces = uses_blocks() ? NewtonSchulzPieces::blocks : NewtonSchulzPieces::refused;
    std::vector<WholeMatrices> wholes;
    std::vector<Value> values;
    for (const Value momentum : momenta) {
      wholes.push_back(uses_blocks() ? WholeMatrices{momentum, {}} : gathered(momentum));
      values.push_back(wholes.back().value);
    }
    values = newton_schulz(builder_, values, muon_.config.muon_steps, pieces);
    std::vector<MeasuredUpdate> measured;
    for (size_t i = 0; i < values.size(); ++i) {
      measured.push_back({values[i], factor_of(*parts[i].spec)});
    }
    measures_.push_back(muon_measures(builder_, measured, pieces));
    for (size_t i = 0; i < values.size(); ++i) values[i] = split_again(values[i], wholes[i]);
    return values;
  }

  /// Appends the update of the weights and masters of these parts.
  void write_update(std::span<const MatrixPart> parts, const std::vector<Value>& updates) {
    std::vector<MuonMatrix> matrices;
    for (size_t i = 0; i < updates.size(); ++i) {
      const AdamWUnit& states = states_of(parts[i]);
      const ParameterSpec& spec = *parts[i].spec;
      matrices.push_back(
          {.update = updates[i],
           .master = view_of(parts[i], states.master, states.weight ? "master:" : ""),
           .weight = {},
           .factor = factor_of(spec),
           .decays = decays(muon_.config, spec)});
      if (states.weight) matrices.back().weight = view_of(parts[i], *states.weight, "");
    }
    muon_update(builder_,
                {.scale = in_mesh_view_of(parts, muon_.scale),
                 .learning_rate = in_mesh_view_of(parts, muon_.learning_rate)},
                matrices, muon_.config.weight_decay);
  }

  /// Returns matrices whose rows and columns are gathered over the axes that split them.
  WholeMatrices gathered(Value value) {
    WholeMatrices whole{value, {}};
    const Spec spec = builder_.spec(value);
    for (int dim = spec.shape.rank() - 2; dim < spec.shape.rank(); ++dim) {
      for (const Axis axis : spec.distribution.joining_order(dim)) {
        whole.splits.emplace_back(axis, spec.distribution.on(axis));
        whole.value =
            convert(builder_, whole.value, axis, Placement::sharded, invariant(), Lane::reductions);
      }
    }
    return whole;
  }

  Value split_again(Value value, const WholeMatrices& whole) {
    for (auto split = whole.splits.rbegin(); split != whole.splits.rend(); ++split) {
      value = convert(builder_, value, split->first, Placement::invariant, split->second,
                      Lane::reductions);
    }
    return value;
  }

  /// Returns zero measures, for a rank that orthogonalises nothing of a chain. They have the
  /// distribution of the other ranks' measures, so that all ranks take the same sum.
  Value no_measures(const MatrixChain& chain) {
    const ParameterSpec& spec = muon_.parameters[chain.first_parameter];
    Distribution distribution(spec.distribution.view());
    for (const Axis axis : mesh().axes_of(distribution.view())) {
      const TypeOnAxis& type = spec.distribution.on(axis);
      const bool splits_experts = spec.shape.rank() == 3 && type.dim == 0;
      if (type.split() && (uses_blocks() || splits_experts)) {
        distribution = distribution.with(axis, partial());
      }
    }
    for (const Axis axis : chain.axes) distribution = distribution.with(axis, partial());
    return zeros(builder_, {{MuonMeasures::kSums}, DType::f64, distribution});
  }

  /// Adds up measures_, one sum for each distribution, and clears the list.
  std::vector<Value> sums_by_distribution() {
    std::vector<std::vector<Value>> groups;
    for (const Value value : std::exchange(measures_, {})) {
      const auto same = std::ranges::find_if(groups, [&](const std::vector<Value>& values) {
        return builder_.spec(values[0]).distribution == builder_.spec(value).distribution;
      });
      (same == groups.end() ? groups.emplace_back() : *same).push_back(value);
    }
    std::vector<Value> sums;
    for (const std::vector<Value>& values : groups) {
      sums.push_back(values.size() == 1 ? values[0] : add(builder_, values, DType::f64));
    }
    return sums;
  }

  /// Returns the factor on an update. A block that is orthogonalised by itself counts as a matrix.
  double factor_of(const ParameterSpec& spec) const {
    return muon_factor(uses_blocks() ? spec.piece_shape : spec.shape);
  }

  /// Returns the part's view of a unit's flat value, with a name that begins with `prefix`.
  Value view_of(const MatrixPart& part, Value unit, const char* prefix) {
    const ParameterSpec& spec = *part.spec;
    const auto parameter = static_cast<size_t>(&spec - muon_.parameters.data());
    return view(builder_, unit, muon_.shard.offset_in(parameter, Kept::master) + part.offset,
                part.shape, part.distribution,
                fmt::format("{}{}{}", prefix, spec.name, part.suffix));
  }

  Value in_mesh_view_of(std::span<const MatrixPart> parts, Value number) {
    return cross(builder_, number, unit_of(*parts.front().spec).distribution.view());
  }

  bool uses_blocks() const { return muon_.config.muon_split == MuonSplit::blocks; }
  const Mesh& mesh() const { return builder_.program().mesh(); }
  const ParameterUnit& unit_of(const ParameterSpec& spec) const {
    return muon_.units[static_cast<size_t>(spec.unit_index)];
  }
  const AdamWUnit& states_of(const MatrixPart& part) const {
    return muon_.states[static_cast<size_t>(part.spec->unit_index)];
  }

  Builder& builder_;
  const MuonOperands& muon_;
  std::vector<Value> measures_;
  int chains_written_ = 0;  // numbers the chains in names
};

}  // namespace

OptimizerName updated_by(const OptimizerConfig& config, const ParameterSpec& parameter) {
  return is_hidden_matrix(parameter.role, parameter.shape) ? config.name : OptimizerName::adamw;
}

OptimizerName updated_by(const OptimizerConfig& config, const ParameterUnit& unit) {
  return unit.matrices ? config.name : OptimizerName::adamw;
}

std::vector<Value> write_muon(Builder& builder, const MuonOperands& operands) {
  return MuonWriter(builder, operands).write();
}

}  // namespace tessera
