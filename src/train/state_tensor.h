#pragma once

#include <string>

#include "comm/rank_control.h"
#include "model/parameter.h"
#include "program/runtime.h"
#include "tensor/tensor.h"

namespace tessera {

/// A tensor of a checkpoint, of which this rank holds a piece that lies as its parameter does.
struct StateTensor {
  std::string group, name;
  Tensor tensor;
  const ParameterSpec* spec;
};

/// The ranks of a run, as one of them saves and loads its state with the others.
struct StateRanks {
  Runtime& runtime;
  const RankControl& control;

  Mesh mesh() const { return control.several() ? runtime.groups().mesh() : Mesh(); }
  /// The piece of a tensor that this rank holds.
  TensorPiece piece(const StateTensor& tensor) const {
    return {mesh(), tensor.spec->distribution, tensor.spec->shape, control.rank()};
  }
};

}  // namespace tessera
