#include "state/muon_program.h"

#include <algorithm>
#include <utility>

#include "ops/collective/convert.h"
#include "ops/update/muon_measures.h"
#include "ops/update/muon_momentum.h"
#include "ops/update/muon_update.h"
#include "ops/update/newton_schulz.h"
#include "program/view.h"
#include "state/update_program.h"

namespace tessera {
namespace {

/// The elements after which a group of matrices is full. Enough for passes to run at the memory's
/// rate and for small matrices to keep all threads busy; what is orthogonalised takes the memory of
/// so many elements twice.
constexpr int64_t kGroupElements = int64_t{1} << 24;

/// Matrices that the operations take together: they lie alike and are of one type.
struct MatrixGroup {
  Distribution lies;  // of their units
  DType dtype;
  int dims;
  int64_t elements = 0;
  std::vector<const ParameterSpec*> matrices;

  bool takes(const ParameterSpec& spec, const Distribution& of_unit) const {
    return lies == of_unit && dtype == spec.dtype && dims == spec.shape.rank() &&
           elements < kGroupElements;
  }
};

/// A matrix that is whole on each rank, and how it was split.
struct WholeMatrix {
  Value value;
  std::vector<std::pair<Axis, TypeOnAxis>> splits;  // the innermost first
};

class MuonWriter {
 public:
  MuonWriter(Builder& builder, const MuonPart& part) : builder_(builder), part_(part) {}

  std::vector<Value> write() {
    std::vector<Value> measures;
    for (const MatrixGroup& group : groups()) measures.push_back(write_group(group));
    return measures;
  }

 private:
  std::vector<MatrixGroup> groups() const {
    std::vector<MatrixGroup> groups;
    for (const ParameterSpec& spec : part_.parameters) {
      if (updated_by(part_.config, spec) != OptimizerName::muon) continue;
      const Distribution& lies = unit_of(spec).distribution;
      auto group = std::ranges::find_if(
          groups, [&](const MatrixGroup& open) { return open.takes(spec, lies); });
      if (group == groups.end()) {
        group = groups.insert(group, {lies, spec.dtype, spec.shape.rank(), 0, {}});
      }
      group->elements += spec.piece_shape.elements();
      group->matrices.push_back(&spec);
    }
    return groups;
  }

  Value write_group(const MatrixGroup& group) {
    const MeshView view_of_group = group.lies.view();
    const Value scale = cross(builder_, part_.scale, view_of_group);
    const Value rate = cross(builder_, part_.learning_rate, view_of_group);
    std::vector<MuonMomentum> momenta;
    for (const ParameterSpec* spec : group.matrices) {
      momenta.push_back({part_of(*spec, states_of(*spec).gradient, "gradient:"),
                         part_of(*spec, states_of(*spec).first_moment, "first_moment:")});
    }
    const std::vector<Value> updates = orthogonalised(
        group, muon_momentum(builder_, scale, momenta, part_.config.muon_momentum, group.dtype));
    std::vector<MuonMatrix> matrices;
    for (size_t i = 0; i < updates.size(); ++i) {
      matrices.push_back(matrix_of(*group.matrices[i], updates[i]));
    }
    muon_update(builder_, {.scale = scale, .learning_rate = rate}, matrices,
                part_.config.weight_decay);
    return measures_;
  }

  /// What each rank has of the orthogonalised matrices. Measures them.
  std::vector<Value> orthogonalised(const MatrixGroup& group, const std::vector<Value>& momenta) {
    const bool blocks = part_.config.muon_split == MuonSplit::blocks;
    const auto pieces = blocks ? NewtonSchulzPieces::blocks : NewtonSchulzPieces::refused;
    std::vector<WholeMatrix> whole;
    std::vector<Value> values;
    for (const Value momentum : momenta) {
      whole.push_back(blocks ? WholeMatrix{momentum, {}} : gathered(momentum));
      values.push_back(whole.back().value);
    }
    values = newton_schulz(builder_, values, part_.config.muon_steps, pieces);
    std::vector<MeasuredUpdate> measured;
    for (size_t i = 0; i < values.size(); ++i) {
      measured.push_back({values[i], factor_of(*group.matrices[i])});
    }
    measures_ = muon_measures(builder_, measured, pieces);
    for (size_t i = 0; i < values.size(); ++i) values[i] = split_again(values[i], whole[i]);
    return values;
  }

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

  MuonMatrix matrix_of(const ParameterSpec& spec, Value update) {
    const AdamWUnit& states = states_of(spec);
    MuonMatrix matrix{.update = update,
                      .master = part_of(spec, states.master, states.weight ? "master:" : ""),
                      .weight = {},
                      .factor = factor_of(spec),
                      .decays = decays(part_.config, spec)};
    if (states.weight) matrix.weight = part_of(spec, *states.weight, "");
    return matrix;
  }

  /// A rank's block counts as a matrix of its own where it is orthogonalised as one.
  double factor_of(const ParameterSpec& spec) const {
    return muon_factor(part_.config.muon_split == MuonSplit::blocks ? spec.piece_shape
                                                                    : spec.shape);
  }

  Value part_of(const ParameterSpec& spec, Value unit, const char* prefix) {
    return view(builder_, unit, spec.unit_offset, spec.piece_shape, spec.distribution,
                prefix + spec.name);
  }

  const ParameterUnit& unit_of(const ParameterSpec& spec) const {
    return part_.units[static_cast<size_t>(spec.unit_index)];
  }
  const AdamWUnit& states_of(const ParameterSpec& spec) const {
    return part_.states[static_cast<size_t>(spec.unit_index)];
  }

  Builder& builder_;
  const MuonPart& part_;
  Value measures_;  // of the group that is being written
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
