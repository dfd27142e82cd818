#include <cmath>

#include "base/error.h"
#include "model/model_config.h"

namespace tessera {
namespace {

void require_positive(const char* key, int64_t value) {
  if (value < 1) throw Error("model.{} is {}; it must be at least 1", key, value);
}

void require_divides(const char* divisor_key, int64_t divisor, const char* key, int64_t value,
                     const char* remedy) {
  if (value % divisor != 0) {
    throw Error("model.{} ({}) does not divide model.{} ({}): {} / {} leaves {}; {}", divisor_key,
                divisor, key, value, value, divisor, value % divisor, remedy);
  }
}

void validate_heads(const ModelConfig& config) {
  if (config.head_dim == 0) {
    require_divides("heads", config.heads, "hidden_size", config.hidden_size,
                    "change one of them or set model.head_dim");
  }
  require_divides("kv_heads", config.kv_heads, "heads", config.heads,
                  "each key and value head serves the same number of query heads");
  const int64_t size = config.head_size();
  if (size % 2 != 0) {
    throw Error(
        "a head has {} channels ({}); rotary embedding turns channels in pairs, so the number must "
        "be even",
        size, config.head_dim > 0 ? "model.head_dim" : "model.hidden_size / model.heads");
  }
  const double rotated = config.rotary_fraction * static_cast<double>(size);
  if (!(rotated >= 2 && rotated <= static_cast<double>(size)) ||
      std::abs(rotated / 2 - std::round(rotated / 2)) > 1e-6) {
    throw Error(
        "model.rotary_fraction ({}) of a head's {} channels is {}; rotary embedding turns channels "
        "in pairs, so it must be an even number from 2 to {}",
        config.rotary_fraction, size, rotated, size);
  }
}

void validate_rope_scaling(const ModelConfig& config) {
  if (config.rope_scaling == "none") return;
  if (config.rope_high_frequency_factor <= config.rope_low_frequency_factor) {
    throw Error(
        "model.rope_high_frequency_factor ({}) must be above model.rope_low_frequency_factor ({}): "
        "frequencies between the two are interpolated",
        config.rope_high_frequency_factor, config.rope_low_frequency_factor);
  }
}

void validate_dense(const ModelConfig& config) {
  if (config.experts_per_token > 0 || config.expert_size > 0) {
    throw Error(
        "model.experts is 0, a dense model, but model.experts_per_token is {} and "
        "model.expert_size is {}; set model.experts, or set these two to 0",
        config.experts_per_token, config.expert_size);
  }
  if (config.shared_experts > 0 || config.dense_layers > 0) {
    throw Error(
        "model.experts is 0, a dense model, but model.shared_experts is {} and model.dense_layers "
        "is {}; set model.experts, or set these two to 0",
        config.shared_experts, config.dense_layers);
  }
  if (config.feed_forward_size < 1) {
    throw Error(
        "model.feed_forward_size is {}, but a dense model needs one: set it, or set "
        "model.experts, model.experts_per_token and model.expert_size",
        config.feed_forward_size);
  }
}

void validate_mixture(const ModelConfig& config) {
  if (config.dense_layers >= config.layers) {
    throw Error(
        "model.dense_layers is {} of {} model.layers; at least one layer of a mixture of experts "
        "has experts",
        config.dense_layers, config.layers);
  }
  if (config.dense_layers == 0 && config.feed_forward_size != 0) {
    throw Error(
        "model.feed_forward_size is {} in a model of {} experts a layer, which has no dense "
        "feed-forward layer; set it to 0 (model.expert_size is the size of an expert), "
        "model.dense_layers to the number of dense layers, or model.experts to 0",
        config.feed_forward_size, config.experts);
  }
  if (config.dense_layers > 0 && config.feed_forward_size < 1) {
    throw Error(
        "model.dense_layers is {}, but model.feed_forward_size, the intermediate size of these "
        "layers, is {}; set both or neither",
        config.dense_layers, config.feed_forward_size);
  }
  if (config.expert_size < 1) {
    throw Error("model.expert_size is {}, but model.experts is {}: an expert needs a size",
                config.expert_size, config.experts);
  }
  if (config.experts_per_token < 1 || config.experts_per_token > config.experts) {
    throw Error("model.experts_per_token is {}; it must lie between 1 and model.experts ({})",
                config.experts_per_token, config.experts);
  }
}

}  // namespace

void validate(const ModelConfig& config) {
  require_positive("layers", config.layers);
  require_positive("hidden_size", config.hidden_size);
  require_positive("heads", config.heads);
  require_positive("kv_heads", config.kv_heads);
  if (config.vocabulary_size < 0) {
    throw Error("model.vocabulary_size is {}; it must not be negative", config.vocabulary_size);
  }
  if (!(config.norm_epsilon > 0)) {
    throw Error("model.norm_epsilon is {}; it must be above 0: norms divide by it where all is 0",
                config.norm_epsilon);
  }
  validate_heads(config);
  validate_rope_scaling(config);
  if (config.mixture()) {
    validate_mixture(config);
  } else {
    validate_dense(config);
  }
}

}  // namespace tessera
