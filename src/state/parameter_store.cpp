#include "state/parameter_store.h"

#include <algorithm>

#include "base/error.h"

namespace tessera {
Tensor ParameterState::held_gradient() const {
  if (held.length == gradient.elements()) return gradient.reshape(master.shape());
  return gradient.reshape({gradient.elements()}).view(held.place, {held.length});
}

ParameterStore::ParameterStore(Executor& executor, int update, int rounding,
                               const ParameterList& parameters, const StateSharing& sharing)
    : executor_(executor),
      rounding_(rounding),
      shards_(executor.program(update).mesh(), parameters, sharing) {
  const int rank = executor.program(update).rank();
  const std::vector<ValueInfo>& values = executor.program(update).values();
  for (size_t i = 0; i < parameters.specs().size(); ++i) {
    const ParameterSpec& spec = parameters.specs()[i];
    const auto number = static_cast<size_t>(spec.unit_index);
    const ParameterUnit& unit = parameters.units()[number];
    const ElementRun held = shards_.held(i, rank);
    const bool cut = shards_.of_unit(number, rank).cut();
    const auto part = [&](const std::string& name) {
      return executor.tensor(name, update).view(spec.unit_offset, spec.piece_shape);
    };
    const auto state = [&](const std::string& name) {
      if (!cut) return part(name);
      const Tensor& own = executor.tensor(name, update);
      // Weights that are their own masters are whole, whatever this rank has of them.
      const bool whole = name == unit.name;
      const int64_t first = whole ? 0 : shards_.first_of_unit(number, rank);
      const int64_t begin = held.length == 0 ? 0 : spec.unit_offset + held.place - first;
      return own.view(begin, {held.length});
    };
    const auto state_if_any = [&](const std::string& name) {
      return std::ranges::find(values, name, &ValueInfo::name) == values.end() ? Tensor()
                                                                               : state(name);
    };
    parameters_.push_back(
        {.spec = spec,
         .weight = part(unit.name),
         .gradient = unit.has_gradients() ? part("gradient:" + unit.name) : Tensor(),
         .held = held,
         .master = state(master_name(unit)),
         .first_moment = state_if_any(first_moment_name(unit)),
         .second_moment = state_if_any(second_moment_name(unit))});
  }
}

const ParameterState& ParameterStore::find(std::string_view name) const {
  const auto found = std::ranges::find_if(
      parameters_, [&](const ParameterState& state) { return state.spec.name == name; });
  TESSERA_CHECK(found != parameters_.end(), "no parameter is named {}", name);
  return *found;
}

std::vector<StatePart> ParameterStore::parts(size_t parameter, const Tensor& of_state) const {
  std::vector<StatePart> parts;
  int64_t first = 0;
  for (TensorPiece& piece : shards_.pieces(parameter, executor_.program(rounding_).rank())) {
    const Shape shape = piece.shape();
    parts.push_back({of_state.reshape({of_state.elements()}).view(first, shape), std::move(piece)});
    first += shape.elements();
  }
  TESSERA_CHECK(first == of_state.elements(), "{} elements of a state of {}", first,
                of_state.elements());
  return parts;
}

void ParameterStore::initialize(uint64_t seed, int threads) const {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    for (const auto& [master, piece] : parts(i, parameters_[i].master)) {
      if (master.accelerator() == nullptr) {
        tessera::initialize(parameters_[i].spec, seed, piece, master, threads);
        continue;
      }
      const Tensor values(master.shape(), master.dtype());
      tessera::initialize(parameters_[i].spec, seed, piece, values, threads);
      upload({values.raw(), static_cast<size_t>(values.bytes())}, master);
    }
  }
  masters_to_weights();
}

void ParameterStore::masters_to_weights() const {
  executor_.run({.segment = Segment::whole, .program = rounding_});
}

}  // namespace tessera
