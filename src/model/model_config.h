#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/words.h"
#include "ops/activation/activation_kind.h"
#include "ops/norm/norm_kind.h"
#include "ops/router/balance_form.h"

namespace tessera {

// The description of a model: ModelConfig. The enumerations before it are options of its fields.

class Contradictions;

/// The published families that have a preset (families.cpp).
enum class Family { llama, mixtral, olmo, olmoe, zaya };
template <>
inline constexpr std::array<std::string_view, 5> kWordsOf<Family>{"llama", "mixtral", "olmo",
                                                                  "olmoe", "zaya"};

/// The computation of queries, keys and values from the stream: by projections alone, with groups
/// of query heads for each key head, or by compressed convolutional attention (ZAYA1, appendix C).
enum class AttentionKind { grouped_query, compressed_convolutional };
template <>
inline constexpr std::array<std::string_view, 2> kWordsOf<AttentionKind>{
    "grouped_query", "compressed_convolutional"};

/// The entries over which queries and keys are normalised: none, whole rows (OLMoE) or each head.
enum class QueryKeyNorm { none, projection, head };
template <>
inline constexpr std::array<std::string_view, 3> kWordsOf<QueryKeyNorm>{"none", "projection",
                                                                        "head"};

/// The stretching of rotary frequencies to longer contexts. Llama 3.1 stretches the low ones.
enum class RopeScaling { none, llama3 };
template <>
inline constexpr std::array<std::string_view, 2> kWordsOf<RopeScaling>{"none", "llama3"};

/// The source of the router's logits: one linear map, or a narrow network that also reads the
/// router state of the previous layer (ZAYA1, section IV-A).
enum class RouterKind { linear, depth_averaged };
template <>
inline constexpr std::array<std::string_view, 2> kWordsOf<RouterKind>{"linear", "depth_averaged"};

/// The skip class, a further class of a router for tokens that visit no expert. `none`: there is no
/// such class. Otherwise such a token's output is zero, or the layer's normed input times the
/// class's probability.
enum class SkipExpert { none, zero, input };
template <>
inline constexpr std::array<std::string_view, 3> kWordsOf<SkipExpert>{"none", "zero", "input"};

/// The mechanism that changes the biases that balance a router's choice: none (there are no
/// biases), an AdamW controller after each micro-batch (ZAYA1), or the sign of the difference to an
/// even load after each step (DeepSeek-V3's loss-free balancing).
enum class BiasBalancing { none, controller, sign };
template <>
inline constexpr std::array<std::string_view, 3> kWordsOf<BiasBalancing>{"none", "controller",
                                                                         "sign"};

/// The initialisation of weights. `scaled` divides the deviation of output matrices by
/// sqrt(2 · layers).
enum class InitializationRule { normal, scaled };
template <>
inline constexpr std::array<std::string_view, 2> kWordsOf<InitializationRule>{"normal", "scaled"};

/// The description of a model: the [model] section. A family's preset fills all of it; the other
/// keys of the section overwrite single fields. A size of 0 means "derived" if its comment says so.
struct ModelConfig {
  Family family = Family::olmoe;

  int64_t layers = 4;
  int64_t hidden_size = 256;
  int64_t heads = 4;
  int64_t kv_heads = 4;
  int64_t head_dim = 0;           ///< 0: hidden_size / heads
  int64_t feed_forward_size = 0;  ///< intermediate size of a dense layer; 0 in a mixture of experts
  int64_t vocabulary_size = 0;    ///< 0: that of the data's tokenizer
  int64_t max_context = 0;        ///< tokens that the model declares to support; 0: data.context

  int64_t experts = 0;  ///< 0: a dense model
  int64_t experts_per_token = 0;
  int64_t expert_size = 0;     ///< intermediate size of one expert
  int64_t shared_experts = 0;  ///< experts that every token uses besides its chosen ones
  int64_t dense_layers = 0;    ///< the number of first layers without experts in a mixture

  AttentionKind attention = AttentionKind::grouped_query;
  NormKind norm = NormKind::rms;
  bool norm_weights = true;  ///< false: OLMo's norm without parameters
  double norm_epsilon = 1e-5;
  QueryKeyNorm query_key_norm = QueryKeyNorm::none;
  double clip_qkv = 0;  ///< limit on q, k and v entries; 0: none
  double rope_theta = 10000;
  RopeScaling rope_scaling = RopeScaling::none;
  double rope_factor = 8;  ///< for RopeScaling::llama3: the divisor of low frequencies
  double rope_low_frequency_factor = 1;
  double rope_high_frequency_factor = 4;
  int64_t rope_original_context = 8192;  ///< the context, in tokens, of the unscaled frequencies
  double rotary_fraction = 1;            ///< the part of a head's channels that is rotated
  Activation activation = Activation::silu;
  bool tied_head = false;
  /// True if sublayers' outputs and the residual stream, which is kept in the accumulation dtype,
  /// each get a learned bias and scale before they are added (ZAYA1, section IV-A).
  bool residual_scaling = false;

  RouterKind router = RouterKind::linear;
  int64_t router_size = 0;  ///< channels of a depth-averaged router
  SkipExpert skip_expert = SkipExpert::none;
  BiasBalancing balance_biases = BiasBalancing::none;
  double balance_bias_rate = 1e-3;   ///< about the most that a bias changes in one update
  bool renormalise_weights = false;  ///< chosen experts' weights sum to one (Mixtral)
  double balance_coefficient = 0;    ///< load-balance loss
  BalanceForm balance_form = BalanceForm::per_layer;
  BalanceTokens balance_tokens = BalanceTokens::micro_batch;
  double router_z_coefficient = 0;
  double capacity_factor = 0;           ///< 0: dropless
  bool forced_uniform_routing = false;  ///< FUR, for measurements (Optimus §2.3)

  double z_loss_coefficient = 0;  ///< on the head's log-sum-exp

  InitializationRule initialization = InitializationRule::normal;
  double initialization_deviation = 0.02;
  double initialization_cutoff = 0;  ///< truncation in deviations; 0: none

  bool mixture() const { return experts > 0; }
  /// Returns the number of classes that a router chooses among: the experts, then the skip class if
  /// there is one.
  int64_t router_classes() const { return experts + (skip_expert == SkipExpert::none ? 0 : 1); }
  int64_t head_size() const { return head_dim > 0 ? head_dim : hidden_size / heads; }
};

/// Returns the preset of a published family (families.cpp).
ModelConfig family_preset(Family family);

/// Throws Error if sizes or options contradict each other. The message names the keys and numbers.
void validate(const ModelConfig& config);
/// Adds to `found` everything that validate() would refuse.
void find_contradictions(const ModelConfig& config, Contradictions& found);

}  // namespace tessera
