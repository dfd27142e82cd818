#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/executor.h"
#include "model/parameter.h"
#include "tensor/tensor.h"

namespace tessera {

/// The tensors of this rank's piece of one parameter, views into its unit's flat memory. All but
/// `weight` have the accumulation type (f32, or f64 for f64). Those that the parameter does not
/// have are empty: biases that balance routers have no gradient, and moments only with a
/// controller.
struct ParameterState {
  ParameterSpec spec;
  Tensor weight;         ///< what the program computes with
  Tensor master;         ///< the same memory as `weight` unless that is bf16
  Tensor gradient;       ///< main gradient, summed over the micro-batches of a step
  Tensor first_moment;   ///< AdamW's m, or Muon's momentum
  Tensor second_moment;  ///< AdamW's v; not defined for what Muon updates
};

/// The persistent state of training by parameter, in the memory that the plan gave it.
class ParameterStore {
 public:
  /// Finds the tensors of the units that program `update` of the executor updates. Program
  /// `rounding` rounds masters to weights (see write_rounding()). The executor must outlive the
  /// store.
  ParameterStore(Executor& executor, int update, int rounding, const ParameterList& parameters);

  /// The parameters in the order of the list.
  std::span<const ParameterState> parameters() const { return parameters_; }
  /// The parameter of that name; throws InternalError when there is none.
  const ParameterState& find(std::string_view name) const;
  /// The piece of a parameter that this rank holds.
  TensorPiece piece(const ParameterSpec& spec) const;

  /// Draws the first values from the seed (see initialize()).
  void initialize(uint64_t seed, int threads) const;
  /// Rounds the masters to the weights that the program computes with. Needed after a load.
  void masters_to_weights() const;

 private:
  Executor& executor_;
  int rounding_;
  std::vector<ParameterState> parameters_;
};

}  // namespace tessera
