#pragma once

#include "model/model_writer.h"
#include "ops/activation/activation.h"

namespace tessera {

/// The activation that the configuration names.
Activation gate_activation(const ModelConfig& config);

/// The gated feed-forward layer of a dense model: down(activation(gate(x)) · up(x)); x and the
/// result are [tokens, hidden].
Value feed_forward(ModelWriter& writer, Value x);

}  // namespace tessera
