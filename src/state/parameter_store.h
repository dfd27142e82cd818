#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "model/parameter.h"
#include "tensor/memory_pool.h"
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

/// All persistent state of training. Parameters are grouped in units (a layer's dense part, a
/// layer's experts, embedding, head); each unit's masters, gradients and optimizer states lie
/// flattened one behind another, each parameter padded to the pool's alignment, so that a unit can
/// be reduced, sharded or gathered as one piece.
class ParameterStore {
 public:
  /// Takes the memory of every unit from the pool; nothing is initialised but gradients and
  /// moments, which are zero.
  ParameterStore(MemoryPool& pool, std::span<const ParameterSpec> specs);

  /// In the order of the specs.
  std::span<const ParameterState> parameters() const { return parameters_; }
  /// The parameter of that name; throws InternalError when there is none.
  const ParameterState& find(std::string_view name) const;

  /// Draws the first values from the seed (see initialize()).
  void initialize(uint64_t seed, int threads) const;
  /// Rounds the masters to the weights that the program computes with: after a load.
  void masters_to_weights() const;
  /// Sets all main gradients to zero: before a step's first micro-batch.
  void zero_gradients(int threads) const;

  /// The sizes of the allocations that the constructor makes, in order: what a memory plan replays.
  static std::vector<int64_t> allocation_sizes(std::span<const ParameterSpec> specs);

 private:
  std::vector<ParameterState> parameters_;
  std::vector<Tensor> gradients_;  // by unit, flat
};

}  // namespace tessera
