#include "checkpoint/hugging_face/architecture.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace tessera::hugging_face {
namespace {

/// The known architectures. Members that a row leaves out have the defaults of Architecture.
constexpr std::array<Architecture, 5> kArchitectures{{
    {.name = "OlmoForCausalLM",
     .family = Family::olmo,
     .chooses_head_dim = false,
     .tokens = {-1, 50279, 1}},
    {.name = "OlmoeForCausalLM",
     .family = Family::olmoe,
     .chooses_head_dim = false,
     .experts_key = "num_experts",
     .max_context = 4096,
     .balance_coefficient = 0.01,
     .tokens = {-1, 50279, 1}},
    {.name = "LlamaForCausalLM",
     .family = Family::llama,
     .norm_epsilon = 1e-6,
     .tokens = {1, 2, -1}},
    {.name = "MixtralForCausalLM",
     .family = Family::mixtral,
     .experts_key = "num_local_experts",
     .kv_heads = 8,
     .rope_theta = 1e6,
     .max_context = 131072,
     .balance_coefficient = 0.001,
     .tokens = {1, 2, -1}},
    {.name = "ZayaForCausalLM",
     .family = Family::zaya,
     .experts_key = "num_experts",
     .kv_heads = 2,
     .head_dim = 128,
     .rope_theta = 5e6,
     .max_context = 131072,
     .tied_head = true,
     .tokens = {2, 106, 0}},
}};

/// Collects the keys of a configuration whose values differ from those of an architecture.
struct Requirements {
  std::vector<std::string> differences = {};

  template <typename Value>
  void equal(const char* key, const Value& found, const Value& expected) {
    if (found == expected) return;
    if constexpr (Worded<Value>) {
      return equal(key, word(found), word(expected));
    } else {
      differences.push_back(fmt::format("model.{} is {}, it has {}", key, found, expected));
    }
  }
};

/// Returns the architecture that shares the most telling keys: attention, experts and norms.
std::string_view nearest_architecture(const ModelConfig& config) {
  if (config.attention == AttentionKind::compressed_convolutional) return "ZayaForCausalLM";
  const bool projections = config.query_key_norm == QueryKeyNorm::projection;
  if (config.mixture()) return projections ? "OlmoeForCausalLM" : "MixtralForCausalLM";
  return config.norm == NormKind::layer ? "OlmoForCausalLM" : "LlamaForCausalLM";
}

/// Checks the keys in which ZAYA1 differs from all other architectures.
void require_zaya_keys(Requirements& requirements, const ModelConfig& config, bool zaya) {
  requirements.equal("router", config.router,
                     zaya ? RouterKind::depth_averaged : RouterKind::linear);
  requirements.equal("skip_expert", config.skip_expert, zaya ? SkipExpert::zero : SkipExpert::none);
  requirements.equal("residual_scaling", config.residual_scaling, zaya);
  if (!zaya) {
    requirements.equal("balance_biases", config.balance_biases, BiasBalancing::none);
    requirements.equal("rotary_fraction", config.rotary_fraction, 1.0);
    return;
  }
  // ZAYA1 has such biases. Any way of updating them is accepted.
  if (config.balance_biases == BiasBalancing::none) {
    requirements.equal("balance_biases", config.balance_biases, BiasBalancing::controller);
  }
  requirements.equal("experts_per_token", config.experts_per_token, int64_t{1});
  requirements.equal("renormalise_weights", config.renormalise_weights, false);
  requirements.equal("rope_scaling", config.rope_scaling, RopeScaling::none);
}

}  // namespace

std::span<const Architecture> architectures() { return kArchitectures; }

const Architecture* find_architecture(std::string_view name) {
  const auto found = std::ranges::find(kArchitectures, name, &Architecture::name);
  return found == kArchitectures.end() ? nullptr : &*found;
}

const Architecture& architecture_of(const ModelConfig& config) {
  const Architecture& nearest = *find_architecture(nearest_architecture(config));
  const bool olmo = nearest.family == Family::olmo;
  Requirements requirements;
  requirements.equal("norm", config.norm, olmo ? NormKind::layer : NormKind::rms);
  requirements.equal("norm_weights", config.norm_weights, !olmo);
  if (olmo) requirements.equal("norm_epsilon", config.norm_epsilon, nearest.norm_epsilon);
  requirements.equal(
      "query_key_norm", config.query_key_norm,
      nearest.family == Family::olmoe ? QueryKeyNorm::projection : QueryKeyNorm::none);
  if (nearest.chooses_head_dim) requirements.equal("clip_qkv", config.clip_qkv, 0.0);
  if (!nearest.chooses_head_dim) {
    requirements.equal("head_dim", config.head_size(), config.hidden_size / config.heads);
  }
  require_zaya_keys(requirements, config, nearest.family == Family::zaya);
  requirements.equal("activation", config.activation, Activation::silu);
  requirements.equal("forced_uniform_routing", config.forced_uniform_routing, false);
  requirements.equal("shared_experts", config.shared_experts, int64_t{0});
  requirements.equal("dense_layers", config.dense_layers, int64_t{0});
  if (nearest.family == Family::mixtral) {
    requirements.equal("renormalise_weights", config.renormalise_weights, true);
  }
  if (!requirements.differences.empty()) {
    throw Error(
        "no architecture of transformers that Tessera knows has these layers; the nearest is {}, "
        "but {}",
        nearest.name, join(requirements.differences, ", and "));
  }
  return nearest;
}

}  // namespace tessera::hugging_face
