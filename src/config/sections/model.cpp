#include "config/sections.h"

namespace tessera {
namespace {

constexpr int64_t kMostLayers = 1 << 16;
constexpr int64_t kLargestSize = 1 << 24;

void add_sizes(SectionWriter<ModelConfig>& writer) {
  const IntegerRule count = whole(1, kMostLayers);
  const IntegerRule size = whole(1, kLargestSize);
  const IntegerRule optional_size = whole(0, kLargestSize);
  writer.key("layers", &ModelConfig::layers, count, "transformer blocks")
      .key("hidden_size", &ModelConfig::hidden_size, size, "channels of the residual stream")
      .key("heads", &ModelConfig::heads, count, "attention heads of the queries")
      .key("kv_heads", &ModelConfig::kv_heads, count, "attention heads of the keys and values")
      .key("head_dim", &ModelConfig::head_dim, optional_size,
           "channels of a head; 0: hidden_size / heads")
      .key("feed_forward_size", &ModelConfig::feed_forward_size, optional_size,
           "intermediate size of a dense layer; 0 in a mixture of experts")
      .key("vocabulary_size", &ModelConfig::vocabulary_size, optional_size,
           "tokens that the model knows; 0: those of the data's tokenizer")
      .key("max_context", &ModelConfig::max_context, whole(0, kLargestSize),
           "tokens of the longest context that the model declares to others (export), "
           "data.context at least; 0: data.context")
      .key("experts", &ModelConfig::experts, whole(0, kMostLayers),
           "experts of a layer; 0: a dense model")
      .key("experts_per_token", &ModelConfig::experts_per_token, whole(0, kMostLayers),
           "experts that each token visits; 0 in a dense model")
      .key("expert_size", &ModelConfig::expert_size, optional_size,
           "intermediate size of one expert; 0 in a dense model")
      .key("shared_experts", &ModelConfig::shared_experts, whole(0, kMostLayers),
           "experts that every token visits beside its chosen ones, computed as one layer of "
           "shared_experts * expert_size")
      .key("dense_layers", &ModelConfig::dense_layers, whole(0, kMostLayers),
           "of a mixture of experts: how many of the first layers are dense, of feed_forward_size");
}

void add_layers(SectionWriter<ModelConfig>& writer) {
  writer
      .key("attention", &ModelConfig::attention, word_rule<AttentionKind>(),
           "how queries, keys and values are made: by projections, or by compressed convolutional "
           "attention (ZAYA1)")
      .key("norm", &ModelConfig::norm, word_rule<NormKind>(), "root-mean-square norm or layer norm")
      .key("norm_weights", &ModelConfig::norm_weights, FlagRule{}, "whether norms have weights")
      .key("norm_epsilon", &ModelConfig::norm_epsilon, number_above(0),
           "what norms add to the mean square")
      .key("query_key_norm", &ModelConfig::query_key_norm, word_rule<QueryKeyNorm>(),
           "norm of queries and keys: over the whole projection, or over each head")
      .key("clip_qkv", &ModelConfig::clip_qkv, number_at_least(0),
           "limit on entries of queries, keys and values; 0: none")
      .key("rope_theta", &ModelConfig::rope_theta, number_above(0),
           "base of the rotary embedding's frequencies")
      .key("rope_scaling", &ModelConfig::rope_scaling, word_rule<RopeScaling>(),
           "how the frequencies are stretched to longer contexts; \"llama3\" is Llama 3.1's way")
      .key("rope_factor", &ModelConfig::rope_factor, number_at_least(1),
           "of \"llama3\": what the low frequencies are divided by")
      .key("rope_low_frequency_factor", &ModelConfig::rope_low_frequency_factor, number_above(0),
           "of \"llama3\": frequencies of fewer turns in the original context are divided")
      .key("rope_high_frequency_factor", &ModelConfig::rope_high_frequency_factor, number_above(0),
           "of \"llama3\": frequencies of more turns in the original context stay")
      .key("rope_original_context", &ModelConfig::rope_original_context, whole(1, kLargestSize),
           "of \"llama3\": tokens of the context that the unstretched frequencies were made for")
      .key("rotary_fraction", &ModelConfig::rotary_fraction,
           NumberRule{.minimum = 0, .maximum = 1, .excludes_minimum = true},
           "the part of a head's channels that is rotated")
      .key("activation", &ModelConfig::activation, word_rule<Activation>(),
           "of feed-forward layers and experts")
      .key("tied_head", &ModelConfig::tied_head, FlagRule{},
           "whether the head's weights are the embedding's")
      .key("residual_scaling", &ModelConfig::residual_scaling, FlagRule{},
           "whether sublayers' outputs and the residual stream, kept in f32, have learned biases "
           "and scales (ZAYA1)");
}

void add_routing(SectionWriter<ModelConfig>& writer) {
  writer
      .key("router", &ModelConfig::router, word_rule<RouterKind>(),
           "a linear map, or a narrow network that also reads the router of the layer before "
           "(ZAYA1)")
      .key("router_size", &ModelConfig::router_size, whole(0, kLargestSize),
           "channels of a \"depth_averaged\" router; 0 with a linear one")
      .key("skip_expert", &ModelConfig::skip_expert, word_rule<SkipExpert>(),
           "whether the router may send a token to no expert, and what the token gets instead: "
           "zero, or its input times the probability")
      .key("balance_biases", &ModelConfig::balance_biases, word_rule<BiasBalancing>(),
           "biases of the router's choice that balance the load: changed by ZAYA1's controller "
           "after each micro-batch, or by the sign of the difference to an even load after each "
           "step")
      .key("balance_bias_rate", &ModelConfig::balance_bias_rate, number_above(0),
           "how far balance_biases change the biases at once, about")
      .key("renormalise_weights", &ModelConfig::renormalise_weights, FlagRule{},
           "whether the weights of a token's experts are scaled to sum to one")
      .key("balance_coefficient", &ModelConfig::balance_coefficient, number_at_least(0),
           "weight of the load-balance loss")
      .key("balance_form", &ModelConfig::balance_form, word_rule<BalanceForm>(),
           "load-balance loss of each layer, or of all layers' tokens together")
      .key("balance_tokens", &ModelConfig::balance_tokens, word_rule<BalanceTokens>(),
           "the tokens among which the load-balance loss wants the load even: the micro-batch of "
           "one data-parallel rank, the micro-batch of all ranks, or all micro-batches of the step "
           "so far")
      .key("router_z_coefficient", &ModelConfig::router_z_coefficient, number_at_least(0),
           "weight of the router's z-loss")
      .key("capacity_factor", &ModelConfig::capacity_factor, number_at_least(0),
           "an expert's tokens at most, over its even share; 0: no token is dropped")
      .key("forced_uniform_routing", &ModelConfig::forced_uniform_routing, FlagRule{},
           "send tokens to experts in turn, for measurements of speed");
}

void add_training(SectionWriter<ModelConfig>& writer) {
  writer
      .key("z_loss_coefficient", &ModelConfig::z_loss_coefficient, number_at_least(0),
           "weight of the z-loss on the head's logits")
      .key("initialization", &ModelConfig::initialization, word_rule<InitializationRule>(),
           "of weights; \"scaled\" divides output layers' deviation by sqrt(2 layers)")
      .key("initialization_deviation", &ModelConfig::initialization_deviation, number_above(0),
           "standard deviation of initial weights")
      .key("initialization_cutoff", &ModelConfig::initialization_cutoff, number_at_least(0),
           "deviations at which initial weights are truncated; 0: nowhere");
}

}  // namespace

ConfigSection model_section() {
  SectionWriter writer("model", &RunConfig::model,
                       "the model; keys that are left out have the family's values");
  writer.key("family", &ModelConfig::family, word_rule<Family>(),
             "the published family whose preset fills the other keys");
  add_sizes(writer);
  add_layers(writer);
  add_routing(writer);
  add_training(writer);
  return writer.section();
}

}  // namespace tessera
