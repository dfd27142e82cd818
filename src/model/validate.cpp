// Refuses models whose sizes or options contradict each other. find_contradictions() collects all
// contradictions, so that a user sees them at once; each validate_...() function checks one part of
// the model. mesh_of() checks what must divide over ranks.

#include <cmath>

#include "base/contradictions.h"
#include "model/model_config.h"

namespace tessera {
namespace {

void require_positive(Contradictions& found, const char* key, int64_t value) {
  if (value < 1) found.add("model.{} is {}; it must be at least 1", key, value);
}

/// Notes a contradiction unless the divisor divides the value. `remedy` ends the message.
void require_divides(Contradictions& found, const char* divisor_key, int64_t divisor,
                     const char* key, int64_t value, const char* remedy) {
  if (value % divisor != 0) {
    found.add("model.{} ({}) does not divide model.{} ({}): {} / {} leaves {}; {}", divisor_key,
              divisor, key, value, value, divisor, value % divisor, remedy);
  }
}

void validate_heads(const ModelConfig& config, Contradictions& found) {
  const bool has_head_dim = config.head_dim > 0;
  if (!has_head_dim) {
    require_divides(found, "heads", config.heads, "hidden_size", config.hidden_size,
                    "change one of them or set model.head_dim");
  }
  require_divides(found, "kv_heads", config.kv_heads, "heads", config.heads,
                  "each key and value head serves the same number of query heads");
  if (!has_head_dim && config.hidden_size % config.heads != 0) return;  // then a head has no size
  const int64_t size = config.head_size();
  if (size % 2 != 0) {
    found.add(
        "a head has {} channels ({}); rotary embedding turns channels in pairs, so the number must "
        "be even",
        size, has_head_dim ? "model.head_dim" : "model.hidden_size / model.heads");
    return;
  }
  constexpr double kRounding = 1e-6;  // a fraction such as 1 / 3 is written with a few digits
  const double rotated = config.rotary_fraction * static_cast<double>(size);
  if (!(rotated >= 2 && rotated <= static_cast<double>(size)) ||
      std::abs(rotated / 2 - std::round(rotated / 2)) > kRounding) {
    found.add(
        "model.rotary_fraction ({}) of a head's {} channels is {}; rotary embedding turns channels "
        "in pairs, so it must be an even number from 2 to {}",
        config.rotary_fraction, size, rotated, size);
  }
}

void validate_rope_scaling(const ModelConfig& config, Contradictions& found) {
  if (config.rope_scaling == RopeScaling::none) return;
  if (config.rope_high_frequency_factor <= config.rope_low_frequency_factor) {
    found.add(
        "model.rope_high_frequency_factor ({}) must be above model.rope_low_frequency_factor ({}): "
        "frequencies between the two are interpolated",
        config.rope_high_frequency_factor, config.rope_low_frequency_factor);
  }
}

void validate_dense(const ModelConfig& config, Contradictions& found) {
  if (config.experts_per_token > 0 || config.expert_size > 0) {
    found.add(
        "model.experts is 0, a dense model, but model.experts_per_token is {} and "
        "model.expert_size is {}; set model.experts, or set these two to 0",
        config.experts_per_token, config.expert_size);
  }
  if (config.shared_experts > 0 || config.dense_layers > 0) {
    found.add(
        "model.experts is 0, a dense model, but model.shared_experts is {} and model.dense_layers "
        "is {}; set model.experts, or set these two to 0",
        config.shared_experts, config.dense_layers);
  }
  if (config.feed_forward_size < 1) {
    found.add(
        "model.feed_forward_size is {}, but a dense model needs one: set it, or set "
        "model.experts, model.experts_per_token and model.expert_size",
        config.feed_forward_size);
  }
}

void validate_mixture(const ModelConfig& config, Contradictions& found) {
  if (config.dense_layers >= config.layers) {
    found.add(
        "model.dense_layers is {} of {} model.layers; at least one layer of a mixture of experts "
        "has experts",
        config.dense_layers, config.layers);
  }
  if (config.dense_layers == 0 && config.feed_forward_size != 0) {
    found.add(
        "model.feed_forward_size is {} in a model of {} experts a layer, which has no dense "
        "feed-forward layer; set it to 0 (model.expert_size is the size of an expert), "
        "model.dense_layers to the number of dense layers, or model.experts to 0",
        config.feed_forward_size, config.experts);
  }
  if (config.dense_layers > 0 && config.feed_forward_size < 1) {
    found.add(
        "model.dense_layers is {}, but model.feed_forward_size, the intermediate size of these "
        "layers, is {}; set both or neither",
        config.dense_layers, config.feed_forward_size);
  }
  if (config.expert_size < 1) {
    found.add("model.expert_size is {}, but model.experts is {}: an expert needs a size",
              config.expert_size, config.experts);
  }
  if (config.experts_per_token < 1 || config.experts_per_token > config.experts) {
    found.add("model.experts_per_token is {}; it must lie between 1 and model.experts ({})",
              config.experts_per_token, config.experts);
  }
}

void validate_attention(const ModelConfig& config, Contradictions& found) {
  if (config.attention != AttentionKind::compressed_convolutional) return;
  if (config.query_key_norm != QueryKeyNorm::none) {
    found.add(
        "model.query_key_norm is \"{}\", but model.attention = \"compressed_convolutional\" has a "
        "norm of its own; set it to \"none\"",
        word(config.query_key_norm));
  }
  if (config.clip_qkv > 0) {
    found.add(
        "model.clip_qkv is {}, but model.attention = \"compressed_convolutional\" clips nothing; "
        "set it to 0",
        config.clip_qkv);
  }
}

void validate_residual(const ModelConfig& config, Contradictions& found) {
  if (!config.residual_scaling) return;
  if (config.norm != NormKind::rms || !config.norm_weights) {
    found.add(
        "model.residual_scaling is fused with an RMSNorm that has weights; set model.norm = "
        "\"rms\" and model.norm_weights = true, or model.residual_scaling = false");
  }
}

void validate_router(const ModelConfig& config, Contradictions& found) {
  const bool averaged = config.router == RouterKind::depth_averaged;
  if (averaged && config.router_size < 1) {
    found.add("model.router is \"depth_averaged\", but model.router_size is {}; set it",
              config.router_size);
  }
  if (!averaged && config.router_size != 0) {
    found.add(
        "model.router_size is {}, but model.router is \"linear\"; set it to 0, or model.router to "
        "\"depth_averaged\"",
        config.router_size);
  }
  if (config.mixture()) return;
  if (averaged || config.skip_expert != SkipExpert::none ||
      config.balance_biases != BiasBalancing::none) {
    found.add(
        "model.experts is 0, a dense model, but model.router is \"{}\", model.skip_expert \"{}\" "
        "and model.balance_biases \"{}\"; set model.experts, or set these to \"linear\", \"none\" "
        "and \"none\"",
        word(config.router), word(config.skip_expert), word(config.balance_biases));
  }
}

/// Refuses models whose parameters, with all copies, have more bytes than 64 bits can count.
void validate_parameters(const ModelConfig& config, Contradictions& found) {
  constexpr double kMaxParameters = 0x1p56;  // leaves 2^7 bytes for the copies of each
  const auto real = [](int64_t value) { return static_cast<double>(value); };
  const double feed_forward =
      3 * real(config.hidden_size) *
      (real(config.feed_forward_size) +
       real(config.experts + config.shared_experts) * real(config.expert_size));
  const double attention =
      4 * real(config.hidden_size) * real(config.heads) *
      real(config.head_dim > 0 ? config.head_dim : config.hidden_size / config.heads);
  const double total = real(config.layers) * (attention + feed_forward) +
                       2 * real(config.vocabulary_size) * real(config.hidden_size);
  if (total < kMaxParameters) return;
  found.add(
      "model.layers ({}) of model.hidden_size {} have about {:g} parameters; expected fewer than "
      "{:g}: choose smaller sizes",
      config.layers, config.hidden_size, total, kMaxParameters);
}

}  // namespace

void find_contradictions(const ModelConfig& config, Contradictions& found) {
  require_positive(found, "layers", config.layers);
  require_positive(found, "hidden_size", config.hidden_size);
  require_positive(found, "heads", config.heads);
  require_positive(found, "kv_heads", config.kv_heads);
  if (!found.none()) return;  // the checks below divide by these
  if (config.vocabulary_size < 0) {
    found.add("model.vocabulary_size is {}; it must not be negative", config.vocabulary_size);
  }
  if (!(config.norm_epsilon > 0)) {
    found.add("model.norm_epsilon is {}; it must be above 0: norms divide by it where all is 0",
              config.norm_epsilon);
  }
  validate_parameters(config, found);
  validate_heads(config, found);
  validate_rope_scaling(config, found);
  validate_attention(config, found);
  validate_residual(config, found);
  validate_router(config, found);
  if (config.mixture()) {
    validate_mixture(config, found);
  } else {
    validate_dense(config, found);
  }
}

void validate(const ModelConfig& config) {
  Contradictions found;
  find_contradictions(config, found);
  found.require_none();
}

}  // namespace tessera
