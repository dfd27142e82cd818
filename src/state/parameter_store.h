#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/executor.h"
#include "model/parameter.h"
#include "state/unit_shard.h"
#include "tensor/tensor.h"

namespace tessera {

/// The tensors of this rank's piece of one parameter, views into its unit's flat memory. All but
/// `weight` have the accumulation type (f32, or f64 for f64). Those that the parameter does not
/// have are empty: biases that balance routers have no gradient, and moments only with a
/// controller.
struct ParameterState {
  ParameterSpec spec;
  Tensor weight;    ///< what the program computes with
  Tensor gradient;  ///< main gradient, summed over the micro-batches of a step
  /// The elements of the piece, counted row by row, whose masters and moments this rank has: all of
  /// them, unless ranks share them out (see StateShards).
  ElementRun held;
  // Of the piece's shape, or [held.length] if they are shared out.
  Tensor master;         ///< the same memory as `weight` unless that is bf16
  Tensor first_moment;   ///< AdamW's m, or Muon's momentum
  Tensor second_moment;  ///< AdamW's v; not defined for what Muon updates

  /// The gradient of the held elements, in the shape of the masters. After an update it is the sum
  /// over all ranks, and that of other elements is undefined. Empty if there is no gradient.
  Tensor held_gradient() const;
};

/// A box of a parameter, and a tensor of its shape.
struct StatePart {
  Tensor tensor;
  TensorPiece piece;
};

/// The persistent state of training by parameter, in the memory that the plan gave it.
class ParameterStore {
 public:
  /// Finds the tensors of the units that program `update` of the executor updates. Program
  /// `rounding` rounds masters to weights (see write_rounding()). `sharing` is what both were
  /// written with. The executor must outlive the store, and so must the list of parameters.
  ParameterStore(Executor& executor, int update, int rounding, const ParameterList& parameters,
                 const StateSharing& sharing = {});

  /// The parameters in the order of the list.
  std::span<const ParameterState> parameters() const { return parameters_; }
  /// The parameter of that name; throws InternalError when there is none.
  const ParameterState& find(std::string_view name) const;
  /// Which rank has the masters and moments of which elements.
  const StateShards& shards() const { return shards_; }
  /// What this rank has of a parameter's masters or moments: one of the tensors of its state, as
  /// views of the boxes that it consists of.
  std::vector<StatePart> parts(size_t parameter, const Tensor& of_state) const;

  /// Draws the first values from the seed (see initialize()).
  void initialize(uint64_t seed, int threads) const;
  /// Rounds the masters to the weights that the program computes with. Needed after a load.
  void masters_to_weights() const;

 private:
  Executor& executor_;
  int rounding_;
  StateShards shards_;
  std::vector<ParameterState> parameters_;
};

}  // namespace tessera
