#include "state/parameter_store.h"

#include <algorithm>

#include "base/error.h"

namespace tessera {

ParameterStore::ParameterStore(Executor& executor, int update, int rounding,
                               const ParameterList& parameters)
    : executor_(executor), rounding_(rounding) {
  for (const ParameterSpec& spec : parameters.specs()) {
    const ParameterUnit& unit = parameters.units()[static_cast<size_t>(spec.unit_index)];
    const auto part = [&](bool exists, const std::string& name) {
      return exists ? executor.tensor(name, update).view(spec.unit_offset, spec.piece_shape)
                    : Tensor();
    };
    const auto part_if_any = [&](const std::string& name) {
      const std::vector<ValueInfo>& values = executor.program(update).values();
      return part(std::ranges::find(values, name, &ValueInfo::name) != values.end(), name);
    };
    parameters_.push_back({.spec = spec,
                           .weight = part(true, unit.name),
                           .master = part(true, master_name(unit)),
                           .gradient = part(unit.has_gradients(), "gradient:" + unit.name),
                           .first_moment = part(unit.has_moments(), first_moment_name(unit)),
                           .second_moment = part_if_any(second_moment_name(unit))});
  }
}

const ParameterState& ParameterStore::find(std::string_view name) const {
  const auto found = std::ranges::find_if(
      parameters_, [&](const ParameterState& state) { return state.spec.name == name; });
  TESSERA_CHECK(found != parameters_.end(), "no parameter is named {}", name);
  return *found;
}

TensorPiece ParameterStore::piece(const ParameterSpec& spec) const {
  const Program& program = executor_.program(rounding_);
  return {program.mesh(), spec.distribution, spec.shape, program.rank()};
}

void ParameterStore::initialize(uint64_t seed, int threads) const {
  for (const ParameterState& state : parameters_) {
    const TensorPiece piece = this->piece(state.spec);
    if (state.master.accelerator() == nullptr) {
      tessera::initialize(state.spec, seed, piece, state.master, threads);
      continue;
    }
    const Tensor values(state.master.shape(), state.master.dtype());
    tessera::initialize(state.spec, seed, piece, values, threads);
    upload({values.raw(), static_cast<size_t>(values.bytes())}, state.master);
  }
  masters_to_weights();
}

void ParameterStore::masters_to_weights() const {
  executor_.run({.segment = Segment::whole, .program = rounding_});
}

}  // namespace tessera
