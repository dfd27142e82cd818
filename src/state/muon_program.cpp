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
// matrices as parts (views of this rank's memory). Without shared states a part is a parameter.
// With them, a rank goes chain by chain (see MatrixChain): cut matrices first, which their owners
// gather and orthogonalise, then its run of whole matrices. Parts of one distribution and element
// type form groups, which bound the memory of Newton-Schulz.

namespace tessera {
namespace {

/// The number of elements at which a group of matrices takes no more of them. It is enough for
/// passes to run at the memory's bandwidth and for small matrices to keep all threads busy.
/// Orthogonalising takes the memory of the group's elements twice.
constexpr int64_t kGroupElements = int64_t{1} << 24;

/// Consecutive elements of a parameter on this rank, which an update takes as one value.
struct MatrixPart {
  const ParameterSpec* spec = nullptr;
  int64_t first = 0;  // the offset in this rank's piece of the parameter
  Shape shape;        // [rows, columns], [matrices, rows, columns], or [1, elements]
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
  for (const Axis axis : mesh.of_view(view)) {
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

/// Returns the distribution of [matrices, rows, columns]. Each rank of the chain has its count.
Distribution whole_matrices(const Mesh& mesh, const ParameterSpec& spec, const MatrixChain& chain,
                            std::vector<int64_t> counts) {
  const int more_dims = 3 - spec.shape.rank();
  return chain_distribution(mesh, spec, chain, 0, std::move(counts), [=](TypeOnAxis type) {
    type.dim += more_dims;
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
                     run.first * elements_of_matrix(spec),
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

/// A matrix that was gathered on each rank, and its types on the axes that split it before.
struct WholeMatrix {
  Value value;
  std::vector<std::pair<Axis, TypeOnAxis>> splits;  // the innermost first
};

class MuonWriter {
 public:
  MuonWriter(Builder& builder, const MuonPart& part) : builder_(builder), part_(part) {}

  std::vector<Value> write() {
    std::vector<size_t> parameters;
    for (size_t i = 0; i < part_.parameters.size(); ++i) {
      const bool own = updated_by(part_.config, part_.parameters[i]) == OptimizerName::muon;
      if (own) parameters.push_back(i);
    }
    if (part_.shard.sharing().over == ShardOver::none) {
      std::vector<MatrixPart> parts;
      for (const size_t i : parameters) {
        const ParameterSpec& spec = part_.parameters[i];
        parts.push_back({&spec, 0, spec.piece_shape, spec.distribution, ""});
      }
      write_groups(parts);
      return added_by_type();
    }
    std::vector<Value> chain_measures;
    for (const MatrixChain& chain :
         matrix_chains(part_.shard, part_.parameters, parameters, part_.config.muon_split)) {
      write_cuts(chain);
      write_groups(run_parts(mesh(), part_.parameters, chain));
      if (measures_.empty()) measures_.push_back(no_measures(chain));
      const std::vector<Value> sums = added_by_type();
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
          groups, [&](const MatrixGroup& open) { return open.takes(part, distribution); });
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
    MatrixSharing sharing{.name = fmt::format("muon/{}", chain_++),
                          .axes = chain.axes,
                          .ranks = chain.ranks,
                          .position = chain.position,
                          .matrices = {}};
    std::vector<MatrixPart> pieces, owned;
    for (const MatrixChain::Cut& cut : chain.cuts) {
      if (cut.pieces[static_cast<size_t>(chain.position)].length == 0) continue;
      pieces.push_back(cut_piece(mesh(), part_.parameters, chain, cut));
      const MatrixPart matrix = cut_matrix(mesh(), part_.parameters, chain, cut);
      sharing.matrices.push_back(
          {matrix.shape, cut.pieces, cut.owner, matrix.distribution, pieces.back().distribution});
      if (cut.owner == chain.position) owned.push_back(matrix);
    }
    if (pieces.empty()) return;
    const std::vector<Value> updates = momenta_of(pieces);
    std::vector<Value> matrices = gather_at_owners(builder_, sharing, updates);
    std::vector<Value> own;
    std::ranges::copy_if(matrices, std::back_inserter(own),
                         [](Value value) { return bool{value}; });
    if (!own.empty()) own = orthogonalised(owned, own);
    return_to_pieces(builder_, sharing, own, updates);
    write_update(pieces, updates);
  }

  /// Appends the update of the momenta of these parts. Returns the values to orthogonalise.
  std::vector<Value> momenta_of(std::span<const MatrixPart> parts) {
    std::vector<MuonMomentum> momenta;
    for (const MatrixPart& part : parts) {
      momenta.push_back({view_of(part, states_of(part).gradient, "gradient:"),
                         view_of(part, states_of(part).first_moment, "first_moment:")});
    }
    return muon_momentum(builder_, in_view_of(parts, part_.scale), momenta,
                         part_.config.muon_momentum, parts.front().spec->dtype);
  }

  /// Returns this rank's pieces of the orthogonalised matrices, and adds to measures_.
  std::vector<Value> orthogonalised(std::span<const MatrixPart> parts,
                                    const std::vector<Value>& momenta) {
    const auto pieces = blocks() ? NewtonSchulzPieces::blocks : NewtonSchulzPieces::refused;
    std::vector<WholeMatrix> whole;
    std::vector<Value> values;
    for (const Value momentum : momenta) {
      whole.push_back(blocks() ? WholeMatrix{momentum, {}} : gathered(momentum));
      values.push_back(whole.back().value);
    }
    values = newton_schulz(builder_, values, part_.config.muon_steps, pieces);
    std::vector<MeasuredUpdate> measured;
    for (size_t i = 0; i < values.size(); ++i) {
      measured.push_back({values[i], factor_of(*parts[i].spec)});
    }
    measures_.push_back(muon_measures(builder_, measured, pieces));
    for (size_t i = 0; i < values.size(); ++i) values[i] = split_again(values[i], whole[i]);
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
           .decays = decays(part_.config, spec)});
      if (states.weight) matrices.back().weight = view_of(parts[i], *states.weight, "");
    }
    muon_update(builder_,
                {.scale = in_view_of(parts, part_.scale),
                 .learning_rate = in_view_of(parts, part_.learning_rate)},
                matrices, part_.config.weight_decay);
  }

  /// Gathers the rows and columns of matrices over the axes that split them.
  WholeMatrix gathered(Value value) {
    WholeMatrix whole{value, {}};
    const Spec spec = builder_.spec(value);
    for (int dim = spec.shape.rank() - 2; dim < spec.shape.rank(); ++dim) {
      for (const Axis axis : spec.distribution.joining_order(dim)) {
        whole.splits.emplace_back(axis, spec.distribution.on(axis));
        whole.value = convert(builder_, whole.value, axis, Placement::sharded, invariant());
      }
    }
    return whole;
  }

  Value split_again(Value value, const WholeMatrix& whole) {
    for (auto split = whole.splits.rbegin(); split != whole.splits.rend(); ++split) {
      value = convert(builder_, value, split->first, Placement::invariant, split->second);
    }
    return value;
  }

  /// Returns zero measures, for a rank that orthogonalises nothing of a chain. They have the
  /// distribution of the other ranks' measures, so that all ranks take the same sum.
  Value no_measures(const MatrixChain& chain) {
    const ParameterSpec& spec = part_.parameters[chain.parameter];
    Distribution distribution(spec.distribution.view());
    for (const Axis axis : mesh().of_view(distribution.view())) {
      const TypeOnAxis& type = spec.distribution.on(axis);
      const bool splits_experts = spec.shape.rank() == 3 && type.dim == 0;
      if (type.split() && (blocks() || splits_experts)) {
        distribution = distribution.with(axis, partial());
      }
    }
    for (const Axis axis : chain.axes) distribution = distribution.with(axis, partial());
    return nothing_measured(builder_, distribution);
  }

  /// Adds up measures_, one sum for each distribution, and clears the list.
  std::vector<Value> added_by_type() {
    std::vector<std::vector<Value>> by_type;
    for (const Value value : std::exchange(measures_, {})) {
      const auto found = std::ranges::find_if(by_type, [&](const std::vector<Value>& values) {
        return builder_.spec(values[0]).distribution == builder_.spec(value).distribution;
      });
      (found == by_type.end() ? by_type.emplace_back() : *found).push_back(value);
    }
    std::vector<Value> sums;
    for (const std::vector<Value>& values : by_type) {
      sums.push_back(values.size() == 1 ? values[0] : add(builder_, values, DType::f64));
    }
    return sums;
  }

  /// Returns the factor on an update: a block that is orthogonalised by itself counts as a matrix.
  double factor_of(const ParameterSpec& spec) const {
    return muon_factor(blocks() ? spec.piece_shape : spec.shape);
  }

  /// Returns the part's view of a unit's flat value, with a name that begins with `prefix`.
  Value view_of(const MatrixPart& part, Value unit, const char* prefix) {
    const ParameterSpec& spec = *part.spec;
    const auto parameter = static_cast<size_t>(&spec - part_.parameters.data());
    return view(builder_, unit, part_.shard.offset_in_states(parameter) + part.first, part.shape,
                part.distribution, fmt::format("{}{}{}", prefix, spec.name, part.suffix));
  }

  Value in_view_of(std::span<const MatrixPart> parts, Value number) {
    return cross(builder_, number, unit_of(*parts.front().spec).distribution.view());
  }

  bool blocks() const { return part_.config.muon_split == MuonSplit::blocks; }
  const Mesh& mesh() const { return builder_.program().mesh(); }
  const ParameterUnit& unit_of(const ParameterSpec& spec) const {
    return part_.units[static_cast<size_t>(spec.unit_index)];
  }
  const AdamWUnit& states_of(const MatrixPart& part) const {
    return part_.states[static_cast<size_t>(part.spec->unit_index)];
  }

  Builder& builder_;
  const MuonPart& part_;
  std::vector<Value> measures_;
  int chain_ = 0;  // the number of the next chain, for names
};

}  // namespace

OptimizerName updated_by(const OptimizerConfig& config, const ParameterSpec& parameter) {
  return is_hidden_matrix(parameter.role, parameter.shape) ? config.name : OptimizerName::adamw;
}

OptimizerName updated_by(const OptimizerConfig& config, const ParameterUnit& unit) {
  return unit.matrices ? config.name : OptimizerName::adamw;
}

std::vector<Value> write_muon(Builder& builder, const MuonPart& part) {
  return MuonWriter(builder, part).write();
}

}  // namespace tessera
