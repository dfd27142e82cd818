#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/checkpoint_state.h"
#include "comm/mesh.h"
#include "config/run_config.h"

namespace tessera {

/// The sizes of the sets of tokens in which the result of a token depends on the others. With other
/// sets the same weights and batches give other losses. A size is 0 if the model has no such set.
struct TokenSets {
  int64_t balance = 0;   ///< tokens over which a balance loss is computed
  int64_t capacity = 0;  ///< tokens that share the capacity of an expert
  int64_t biases = 0;    ///< tokens that a controller of router biases counts per change
  bool operator==(const TokenSets&) const = default;
};

/// Returns the sets of a run. Only this function decides on which keys they depend.
TokenSets token_sets(const RunConfig& config, const Mesh& mesh);

/// Puts the sets into the state of a checkpoint.
void put_token_sets(CheckpointState& state, const TokenSets& sets);

/// Throws Error if a run continues from a checkpoint with other sets than the run that saved it.
/// `origin` is the checkpoint's path. Checkpoints of earlier versions do not record their sets and
/// are accepted.
void require_same_token_sets(const CheckpointState& saved, const RunConfig& config,
                             const Mesh& mesh, const std::string& origin);

}  // namespace tessera
