#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/executor.h"
#include "model/parameter.h"
#include "tensor/tensor.h"

namespace tessera {

/// The tensors of one parameter, views into its unit's flat memory. All but `weight` are of the
/// accumulation type (f32; f64 in f64).
struct ParameterState {
  ParameterSpec spec;
  Tensor weight;         ///< what the program computes with
  Tensor master;         ///< the same memory as `weight` where that is not bf16
  Tensor gradient;       ///< main gradient, added into over the micro-batches of a step
  Tensor first_moment;   ///< AdamW's m
  Tensor second_moment;  ///< AdamW's v
};

/// All persistent state of training by parameter, where the plan has put it.
class ParameterStore {
 public:
  /// Of the units that program `update` of the executor updates.
  ParameterStore(const Executor& executor, int update, const ParameterList& parameters);

  /// In the order of the list.
  std::span<const ParameterState> parameters() const { return parameters_; }
  /// The parameter of that name; throws InternalError when there is none.
  const ParameterState& find(std::string_view name) const;

  /// Draws the first values from the seed (see initialize()).
  void initialize(uint64_t seed, int threads) const;
  /// Rounds the masters to the weights that the program computes with: after a load.
  void masters_to_weights() const;

 private:
  std::vector<ParameterState> parameters_;
};

}  // namespace tessera
