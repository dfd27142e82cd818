// The keys of [model]: sizes, layers, routing and training. The effect of a key is {a condition} or
// {a condition, the value that asks for nothing} (see Effect).

#include "config/effects.h"
#include "config/sections.h"

namespace tessera {
namespace {

constexpr int64_t kMaxSize = 1 << 24;  // of one dimension

void add_sizes(SectionWriter<ModelConfig>& writer) {
  using namespace effects;
  const IntegerRule count = whole(1, kMaxCount);
  const IntegerRule size = whole(1, kMaxSize);
  const IntegerRule optional_size = whole(0, kMaxSize);
  writer.key("layers", &ModelConfig::layers, count, {always}, "transformer blocks")
      .key("hidden_size", &ModelConfig::hidden_size, size, {always},
           "channels of the residual stream")
      .key("heads", &ModelConfig::heads, count, {always}, "attention heads of the queries")
      .key("kv_heads", &ModelConfig::kv_heads, count, {always},
           "attention heads of the keys and values")
      .key("head_dim", &ModelConfig::head_dim, optional_size, {always},
           "channels of a head; 0: hidden_size / heads")
      .key("feed_forward_size", &ModelConfig::feed_forward_size, optional_size, {always},
           "intermediate size of a dense layer; 0 in a mixture of experts")
      .key("vocabulary_size", &ModelConfig::vocabulary_size, optional_size, {always},
           "tokens that the model knows; 0: those of the data's tokenizer")
      .key("max_context", &ModelConfig::max_context, whole(0, kMaxSize), {always},
           "tokens of the longest context that the model declares to others (export), "
           "data.context at least; 0: data.context")
      .key("experts", &ModelConfig::experts, whole(0, kMaxCount), {always},
           "experts of a layer; 0: a dense model")
      .key("experts_per_token", &ModelConfig::experts_per_token, whole(0, kMaxCount), {always},
           "experts that each token visits; 0 in a dense model")
      .key("expert_size", &ModelConfig::expert_size, optional_size, {always},
           "intermediate size of one expert; 0 in a dense model")
      .key("shared_experts", &ModelConfig::shared_experts, whole(0, kMaxCount), {always},
           "experts that every token visits beside its chosen ones, computed as one layer of "
           "shared_experts * expert_size")
      .key("dense_layers", &ModelConfig::dense_layers, whole(0, kMaxCount), {always},
           "in a mixture of experts: the number of first layers that are dense, of "
           "feed_forward_size");
}

void add_layers(SectionWriter<ModelConfig>& writer) {
  using namespace effects;
  writer
      .key("attention", &ModelConfig::attention, word_rule<AttentionKind>(), {always},
           "how queries, keys and values are made: by projections, or by compressed convolutional "
           "attention (ZAYA1)")
      .key("norm", &ModelConfig::norm, word_rule<NormKind>(), {always},
           "root-mean-square norm or layer norm")
      .key("norm_weights", &ModelConfig::norm_weights, FlagRule{}, {always},
           "whether norms have weights")
      .key("norm_epsilon", &ModelConfig::norm_epsilon, f32_between(1e-30, kMaxWeight), {always},
           "what norms add to the mean square or the variance, before its root is taken")
      .key("query_key_norm", &ModelConfig::query_key_norm, word_rule<QueryKeyNorm>(), {always},
           "norm of queries and keys: over the whole projection, or over each head")
      .key("clip_qkv", &ModelConfig::clip_qkv, f32_between(0, kMaxNumber), {always},
           "limit on entries of queries, keys and values; 0: none")
      .key("rope_theta", &ModelConfig::rope_theta, between(1, kMaxNumber),
           {lacking_in_a_phase<&PhaseConfig::rope_theta>},
           "base of the rotary embedding's frequencies")
      .key("rope_scaling", &ModelConfig::rope_scaling, word_rule<RopeScaling>(),
           {stretches_rope, "none"},
           "how the frequencies are stretched to longer contexts; \"llama3\" is Llama 3.1's way")
      .key("rope_factor", &ModelConfig::rope_factor, between(1, kMaxNumber), {names_rope_scaling},
           "for \"llama3\": the divisor of low frequencies")
      .key("rope_low_frequency_factor", &ModelConfig::rope_low_frequency_factor,
           between(1e-6, kMaxWeight), {stretches_rope},
           "for \"llama3\": frequencies with fewer turns than this in rope_original_context are "
           "divided")
      .key("rope_high_frequency_factor", &ModelConfig::rope_high_frequency_factor,
           between(1e-6, kMaxWeight), {stretches_rope},
           "for \"llama3\": frequencies with more turns than this in rope_original_context stay")
      .key("rope_original_context", &ModelConfig::rope_original_context, whole(1, kMaxSize),
           {stretches_rope},
           "for \"llama3\": tokens of the context that the unstretched frequencies were made for")
      .key("rotary_fraction", &ModelConfig::rotary_fraction,
           NumberRule{.minimum = 0, .maximum = 1, .excludes_minimum = true}, {always},
           "the part of a head's channels that is rotated")
      .key("activation", &ModelConfig::activation, word_rule<Activation>(), {always},
           "the activation of feed-forward layers and experts")
      .key("tied_head", &ModelConfig::tied_head, FlagRule{}, {always},
           "whether the head's weights are the embedding's")
      .key("residual_scaling", &ModelConfig::residual_scaling, FlagRule{}, {always},
           "whether sublayers' outputs and the residual stream, kept in f32, have learned biases "
           "and scales (ZAYA1)");
}

void add_routing(SectionWriter<ModelConfig>& writer) {
  using namespace effects;
  writer
      .key("router", &ModelConfig::router, word_rule<RouterKind>(), {always},
           "a linear map, or a narrow network that also reads the router of the layer before "
           "(ZAYA1)")
      .key("router_size", &ModelConfig::router_size, whole(0, kMaxSize), {always},
           "channels of a \"depth_averaged\" router; 0 with a linear one")
      .key("skip_expert", &ModelConfig::skip_expert, word_rule<SkipExpert>(), {always},
           "whether the router may send a token to no expert, and what the token gets instead: "
           "zero, or its input times the probability")
      .key("balance_biases", &ModelConfig::balance_biases, word_rule<BiasBalancing>(), {always},
           "biases of the router's choice that balance the load: changed by ZAYA1's controller "
           "after each micro-batch, or by the sign of the difference to an even load after each "
           "step")
      .key("balance_bias_rate", &ModelConfig::balance_bias_rate, f32_above_zero(kMaxWeight),
           {balance_biases}, "about the largest change of a bias in one update of balance_biases")
      .key("renormalise_weights", &ModelConfig::renormalise_weights, FlagRule{}, {mixture, false},
           "whether the weights of a token's experts are scaled to sum to one")
      .key("balance_coefficient", &ModelConfig::balance_coefficient, f32_between(0, kMaxWeight),
           {mixture, 0.0}, "weight of the load-balance loss")
      .key("balance_form", &ModelConfig::balance_form, word_rule<BalanceForm>(), {balance_loss},
           "load-balance loss of each layer, or of all layers' tokens together")
      .key("balance_tokens", &ModelConfig::balance_tokens, word_rule<BalanceTokens>(),
           {balance_loss},
           "the tokens among which the load-balance loss wants the load even: the micro-batch of "
           "one data-parallel rank, the micro-batch of all ranks, or all micro-batches of the step "
           "so far")
      .key("router_z_coefficient", &ModelConfig::router_z_coefficient, f32_between(0, kMaxWeight),
           {mixture, 0.0}, "weight of the router's z-loss")
      .key("capacity_factor", &ModelConfig::capacity_factor, zero_or_between(0.001, kMaxCount),
           {drops_tokens, 0.0},
           "the most tokens of an expert, over its even share; 0: no token is dropped")
      .key("forced_uniform_routing", &ModelConfig::forced_uniform_routing, FlagRule{},
           {mixture, false}, "send tokens to experts in turn, for measurements of speed");
}

void add_training(SectionWriter<ModelConfig>& writer) {
  using namespace effects;
  writer
      .key("z_loss_coefficient", &ModelConfig::z_loss_coefficient, f32_between(0, kMaxWeight),
           {always}, "weight of the z-loss on the head's logits")
      .key("initialization", &ModelConfig::initialization, word_rule<InitializationRule>(),
           {draws_weights},
           "how weights are drawn; \"scaled\" divides output layers' deviation by sqrt(2 layers)")
      .key("initialization_deviation", &ModelConfig::initialization_deviation,
           f32_above_zero(kMaxWeight), {draws_weights}, "standard deviation of initial weights")
      .key("initialization_cutoff", &ModelConfig::initialization_cutoff,
           zero_or_between(0.01, kMaxWeight), {draws_weights},
           "deviations at which initial weights are truncated; 0: nowhere");
}

}  // namespace

ConfigSection model_section() {
  using namespace effects;
  SectionWriter writer("model", &RunConfig::model,
                       "the model; keys that are left out have the family's values");
  writer.key("family", &ModelConfig::family, word_rule<Family>(), {always},
             "the published family whose preset fills the other keys");
  add_sizes(writer);
  add_layers(writer);
  add_routing(writer);
  add_training(writer);
  return writer.section();
}

}  // namespace tessera
