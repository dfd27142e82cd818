#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/checkpoint_state.h"
#include "comm/mesh.h"
#include "config/run_config.h"

namespace tessera {

/// How many tokens a step looks at together where a token's result depends on others: with other
/// sets the same weights and batches give other losses. 0 where the model has no such thing.
struct TokenSets {
  int64_t balance = 0;   ///< over which a balance loss is taken
  int64_t capacity = 0;  ///< that share the capacity of an expert
  int64_t biases = 0;    ///< by whose counts a controller changes the biases of routers at once
  bool operator==(const TokenSets&) const = default;
};

/// The sets of a run. This alone decides which keys they depend on.
TokenSets token_sets(const RunConfig& config, const Mesh& mesh);

/// Puts the sets into the state of a checkpoint.
void put_token_sets(CheckpointState& state, const TokenSets& sets);

/// Throws Error if a run that goes on from a checkpoint has other sets than the run that saved it.
/// `origin` is the checkpoint's path. Checkpoints of earlier versions do not say theirs, and pass.
void require_same_token_sets(const CheckpointState& saved, const RunConfig& config,
                             const Mesh& mesh, const std::string& origin);

}  // namespace tessera
