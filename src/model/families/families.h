#pragma once

#include "model/model_config.h"

namespace tessera {

// The published families, each in one file. Each is a preset over the same layers, at the size of
// its best known model. family_preset() in model_config.h finds them.

/// Returns OLMo-1B (Groeneveld et al., 2024): dense, layer norm without parameters, tied head.
ModelConfig olmo_family();
/// Returns OLMoE-1B-7B (Muennighoff et al., 2024): 8 of 64 experts, norm of whole queries and keys.
ModelConfig olmoe_family();
/// Returns Llama 3 8B (Dubey et al., 2024): dense, grouped queries. Llama 3.1 sets rope_scaling.
ModelConfig llama_family();
/// Returns Mixtral 8x7B (Jiang et al., 2024): 8 experts, 2 chosen, whose weights sum to one.
ModelConfig mixtral_family();
/// Returns ZAYA1-base (Anthony et al., 2025): 16 experts, 1 chosen or none, compressed
/// convolutional attention, depth-averaged routers, residual scaling. A token that visits no expert
/// gets zero, as in the public classes of transformers.
ModelConfig zaya_family();

}  // namespace tessera
