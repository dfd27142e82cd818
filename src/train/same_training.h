#pragma once

#include <string>

#include "base/log.h"
#include "checkpoint/checkpoint_state.h"
#include "comm/mesh.h"
#include "config/run_config.h"

namespace tessera {

/// Throws Error, which begins with `origin` and names the key, if a resumed run would not be the
/// run that saved a checkpoint. `saved` is that run's configuration, and `config` the one given
/// now. Logs the other keys that differ, except run.directory. These must stay:
/// - the model, the order of the data, the batches, the seed, the precision, and the keys of the
///   optimizer on which the saved states depend;
/// - in a finished phase the steps, context, global batch, rope_theta, sources and learning rates;
/// - in the current phase the context, global batch and rope_theta, and its end must not be before
///   the checkpoint's step. How long it continues, its learning rate and later phases may change;
/// - the token sets (see put_token_sets()). Checkpoints of earlier versions record none.
void require_same_training(const CheckpointState& state, const RunConfig& saved,
                           const RunConfig& config, const Mesh& mesh, const std::string& origin,
                           const Logger& logger);

/// Records the sizes of a run's token sets in the state of a checkpoint. In a token set the result
/// of one token depends on the others: the tokens of a balance loss, those that share an expert's
/// capacity, and those that a controller of router biases counts per change. With other sets the
/// same weights and batches give other losses. `config` is that of the current phase.
void put_token_sets(CheckpointState& state, const RunConfig& config, const Mesh& mesh);

}  // namespace tessera
