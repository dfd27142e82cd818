#pragma once

#include <string>
#include <utility>
#include <vector>

#include "comm/rank_control.h"
#include "model/parameter.h"
#include "program/runtime.h"
#include "state/parameter_store.h"
#include "tensor/tensor.h"

namespace tessera {

/// A tensor of a checkpoint: the masters or moments of a parameter, and what this rank has of it.
struct StateTensor {
  std::string group, name;
  DType dtype;
  Shape shape;                   ///< of the whole
  std::vector<StatePart> parts;  ///< of this rank; none if it has nothing
  const StateShards* shards;     ///< say what the other ranks have
  size_t parameter;              ///< its number in them
};

/// The masters of a store as a checkpoint has them, or one of the moments.
inline StateTensor state_tensor(const ParameterStore& store, size_t parameter, std::string group,
                                std::string name, const Tensor& of_state) {
  return {.group = std::move(group),
          .name = std::move(name),
          .dtype = of_state.dtype(),
          .shape = store.parameters()[parameter].spec.shape,
          .parts = store.parts(parameter, of_state),
          .shards = &store.shards(),
          .parameter = parameter};
}

/// The tensors of the group "parameters" of a checkpoint.
inline std::vector<StateTensor> master_tensors(const ParameterStore& store) {
  std::vector<StateTensor> tensors;
  for (size_t i = 0; i < store.parameters().size(); ++i) {
    const ParameterState& state = store.parameters()[i];
    tensors.push_back(state_tensor(store, i, "parameters", state.spec.name, state.master));
  }
  return tensors;
}

/// The ranks of a run, as one of them saves and loads its state with the others.
struct StateRanks {
  Runtime& runtime;
  const RankControl& control;

  Mesh mesh() const { return control.several() ? runtime.groups().mesh() : Mesh(); }
};

}  // namespace tessera
