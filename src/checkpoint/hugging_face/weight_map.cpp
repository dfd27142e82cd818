// Tables say which tensor of transformers holds each of our parameters. MapWriter turns the rows of
// a table into segments. count_tensors() needs no map: it counts with a model of two layers.

#include "checkpoint/hugging_face/weight_map.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"
#include "model/model.h"

namespace tessera::hugging_face {
namespace {

/// The way in which one tensor of transformers holds several of our parameters. `none`: it holds
/// only one. `by_expert`: the parameters' rows alternate expert by expert. `by_channels`: the
/// channels of queries come before those of keys.
enum class Joined { none, by_expert, by_channels };

/// The names of one kind of weight: `ours` and, in transformers, `theirs`. Both leave out the
/// layer, which is "layers.3." before `ours` and "model.layers.3." before `theirs`. '@' stands for
/// the number of the expert.
struct WeightNames {
  std::string_view ours;
  std::string_view theirs;
  Joined joined = Joined::none;
  int64_t part = 0;    ///< 0: gate or queries, 1: up or keys
  int inner_dims = 0;  ///< dims of size 1 that `theirs` has after the channels, for convolutions
};

/// All weights of a dense model, and those of a mixture apart from its router and experts.
constexpr std::array<WeightNames, 14> kDense{{
    {"embedding.weight", "model.embed_tokens.weight"},
    {"attention_norm.weight", "input_layernorm.weight"},
    {"attention.query", "self_attn.q_proj.weight"},
    {"attention.key", "self_attn.k_proj.weight"},
    {"attention.value", "self_attn.v_proj.weight"},
    {"attention.query_norm", "self_attn.q_norm.weight"},
    {"attention.key_norm", "self_attn.k_norm.weight"},
    {"attention.output", "self_attn.o_proj.weight"},
    {"feed_forward_norm.weight", "post_attention_layernorm.weight"},
    {"feed_forward.gate", "mlp.gate_proj.weight"},
    {"feed_forward.up", "mlp.up_proj.weight"},
    {"feed_forward.down", "mlp.down_proj.weight"},
    {"norm.weight", "model.norm.weight"},
    {"head.weight", "lm_head.weight"},
}};

constexpr std::array<WeightNames, 4> kSingleExperts{{
    {"router.weight", "mlp.gate.weight"},
    {"experts.gate", "mlp.experts.@.gate_proj.weight"},
    {"experts.up", "mlp.experts.@.up_proj.weight"},
    {"experts.down", "mlp.experts.@.down_proj.weight"},
}};

constexpr std::array<WeightNames, 4> kSingleMixtralExperts{{
    {"router.weight", "block_sparse_moe.gate.weight"},
    {"experts.gate", "block_sparse_moe.experts.@.w1.weight"},
    {"experts.up", "block_sparse_moe.experts.@.w3.weight"},
    {"experts.down", "block_sparse_moe.experts.@.w2.weight"},
}};

constexpr std::array<WeightNames, 4> kFusedExperts{{
    {"router.weight", "mlp.gate.weight"},
    {"experts.gate", "mlp.experts.gate_up_proj", Joined::by_expert, 0},
    {"experts.up", "mlp.experts.gate_up_proj", Joined::by_expert, 1},
    {"experts.down", "mlp.experts.down_proj"},
}};

/// All weights of ZAYA1 but the experts, which are named as in kFusedExperts.
constexpr std::array<WeightNames, 37> kZaya{{
    {"embedding.weight", "model.embed_tokens.weight"},
    {"embedding_scale.scale", "model.input_hidden_states_scale"},
    {"embedding_scale.bias", "model.input_hidden_states_bias"},
    {"attention_norm.weight", "input_layernorm.weight"},
    {"attention.query", "self_attn.qkv_proj.q_proj.weight"},
    {"attention.key", "self_attn.qkv_proj.k_proj.weight"},
    {"attention.value_current", "self_attn.qkv_proj.v_proj_current.weight"},
    {"attention.value_delayed", "self_attn.qkv_proj.v_proj_delayed.weight"},
    {"attention.query_depthwise.weight", "self_attn.qkv_proj.conv_qk_depthwise.weight",
     Joined::by_channels, 0, 1},
    {"attention.key_depthwise.weight", "self_attn.qkv_proj.conv_qk_depthwise.weight",
     Joined::by_channels, 1, 1},
    {"attention.query_depthwise.bias", "self_attn.qkv_proj.conv_qk_depthwise.bias",
     Joined::by_channels, 0},
    {"attention.key_depthwise.bias", "self_attn.qkv_proj.conv_qk_depthwise.bias",
     Joined::by_channels, 1},
    {"attention.query_grouped.weight", "self_attn.qkv_proj.conv_qk_grouped.weight",
     Joined::by_channels, 0},
    {"attention.key_grouped.weight", "self_attn.qkv_proj.conv_qk_grouped.weight",
     Joined::by_channels, 1},
    {"attention.query_grouped.bias", "self_attn.qkv_proj.conv_qk_grouped.bias", Joined::by_channels,
     0},
    {"attention.key_grouped.bias", "self_attn.qkv_proj.conv_qk_grouped.bias", Joined::by_channels,
     1},
    {"attention.temperature", "self_attn.qk_norm.temp"},
    {"attention.output", "self_attn.o_proj.weight"},
    {"attention_merge.output_scale", "post_attention_residual_scale.hidden_states_scale"},
    {"attention_merge.output_bias", "post_attention_residual_scale.hidden_states_bias"},
    {"attention_merge.residual_scale", "post_attention_residual_scale.residual_scale"},
    {"attention_merge.residual_bias", "post_attention_residual_scale.residual_bias"},
    {"feed_forward_norm.weight", "post_attention_layernorm.weight"},
    {"router.down.weight", "mlp.gate.down_proj.weight"},
    {"router.down.bias", "mlp.gate.down_proj.bias"},
    {"router.state_scale", "mlp.gate.router_states_scale"},
    {"router.norm.weight", "mlp.gate.router_mlp.norm.weight"},
    {"router.first.weight", "mlp.gate.router_mlp.fc1.weight"},
    {"router.first.bias", "mlp.gate.router_mlp.fc1.bias"},
    {"router.second.weight", "mlp.gate.router_mlp.fc2.weight"},
    {"router.second.bias", "mlp.gate.router_mlp.fc2.bias"},
    {"router.output", "mlp.gate.router_mlp.out_proj.weight"},
    {"router.balancing_biases", "mlp.gate.balancing_biases"},
    {"feed_forward_merge.output_scale", "post_mlp_residual_scale.hidden_states_scale"},
    {"feed_forward_merge.output_bias", "post_mlp_residual_scale.hidden_states_bias"},
    {"feed_forward_merge.residual_scale", "post_mlp_residual_scale.residual_scale"},
    {"feed_forward_merge.residual_bias", "post_mlp_residual_scale.residual_bias"},
}};

/// Returns the names of all weights that a model of the architecture may have.
std::vector<WeightNames> names_of(const Architecture& architecture, ExpertNaming naming) {
  std::vector<WeightNames> names(kDense.begin(), kDense.end());
  if (architecture.family == Family::zaya) {
    names.insert(names.begin(), kZaya.begin(), kZaya.end());
    names.insert(names.end(), kFusedExperts.begin(), kFusedExperts.end());
    return names;
  }
  const auto& experts = naming == ExpertNaming::fused            ? kFusedExperts
                        : architecture.family == Family::mixtral ? kSingleMixtralExperts
                                                                 : kSingleExperts;
  if (architecture.mixture()) names.insert(names.end(), experts.begin(), experts.end());
  return names;
}

/// Splits "layers.12.attention.query" into "12" and "attention.query". The first part is empty for
/// a weight outside the layers.
std::pair<std::string, std::string> split_layer(const std::string& name) {
  constexpr std::string_view kStart = "layers.";
  if (!name.starts_with(kStart)) return {"", name};
  const size_t end = name.find('.', kStart.size());
  return {name.substr(kStart.size(), end - kStart.size()), name.substr(end + 1)};
}

/// Collects the segments of a map, parameter by parameter.
class MapWriter {
 public:
  explicit MapWriter(const ModelConfig& config) : config_(config) {}

  void add(const ParameterSpec& spec, const WeightNames& names, const std::string& layer) {
    const size_t parameter = map_.parameters.size();
    map_.parameters.push_back({spec.name, spec.shape});
    const std::string prefix = layer.empty() ? "" : "model.layers." + layer + ".";
    const std::string name = prefix + std::string(names.theirs);
    if (name.find('@') != std::string::npos) {
      add_single_experts(parameter, spec.shape, name);
    } else if (names.joined == Joined::by_expert) {
      add_fused_experts(parameter, spec.shape, name, names.part);
    } else if (names.joined == Joined::by_channels) {
      add_channels(parameter, spec.shape, name, names);
    } else {
      segments_.push_back({parameter, 0, tensor(name, spec.shape), 0, spec.shape.elements()});
    }
  }

  WeightMap finish() {
    map_.parameter_segments.resize(map_.parameters.size());
    map_.tensor_segments.resize(map_.tensors.size());
    for (const MappedSegment& segment : segments_) {
      map_.parameter_segments[segment.parameter].push_back(segment);
      map_.tensor_segments[segment.tensor].push_back(segment);
    }
    for (auto& list : map_.tensor_segments)
      std::ranges::sort(list, {}, &MappedSegment::tensor_begin);
    return std::move(map_);
  }

 private:
  /// Returns the index of a tensor. Adds the tensor when its first parameter comes.
  size_t tensor(const std::string& name, const Shape& shape) {
    const auto [found, added] = tensors_.emplace(name, map_.tensors.size());
    if (added) map_.tensors.push_back({name, shape});
    return found->second;
  }

  /// `shape` is [experts, rows, columns]; each expert's tensor is [rows, columns].
  void add_single_experts(size_t parameter, const Shape& shape, const std::string& name) {
    const int64_t count = shape[1] * shape[2];
    for (int64_t expert = 0; expert < config_.experts; ++expert) {
      std::string expert_name = name;
      expert_name.replace(name.find('@'), 1, std::to_string(expert));
      const size_t index = tensor(expert_name, Shape{shape[1], shape[2]});
      segments_.push_back({parameter, expert * count, index, 0, count});
    }
  }

  /// `shape` is [experts, rows, columns]; the tensor is [experts, gate's and up's rows, columns].
  void add_fused_experts(size_t parameter, const Shape& shape, const std::string& name,
                         int64_t part) {
    constexpr int64_t kParts = 2;  // gate and up
    const size_t index = tensor(name, Shape{shape[0], kParts * shape[1], shape[2]});
    const int64_t count = shape[1] * shape[2];
    for (int64_t expert = 0; expert < config_.experts; ++expert) {
      const int64_t begin = (expert * kParts + part) * count;
      segments_.push_back({parameter, expert * count, index, begin, count});
    }
  }

  /// `shape` is [channels, ...]; the tensor is [queries' and keys' channels, 1..., ...].
  void add_channels(size_t parameter, const Shape& shape, const std::string& name,
                    const WeightNames& names) {
    const int64_t queries = config_.heads * config_.head_size();
    const int64_t keys = config_.kv_heads * config_.head_size();
    std::vector<int64_t> dims{queries + keys};
    dims.insert(dims.end(), static_cast<size_t>(names.inner_dims), 1);
    for (int dim = 1; dim < shape.rank(); ++dim) dims.push_back(shape[dim]);
    const int64_t channel_size = shape.elements() / shape[0];
    const int64_t begin = names.part == 0 ? 0 : queries * channel_size;
    segments_.push_back({parameter, 0, tensor(name, Shape(dims)), begin, shape.elements()});
  }

  const ModelConfig& config_;
  WeightMap map_;
  std::vector<MappedSegment> segments_;
  std::map<std::string, size_t> tensors_;  // index by name
};

/// Returns the names of a parameter's kind, and its layer.
std::pair<WeightNames, std::string> find_names(const ParameterSpec& spec,
                                               const std::vector<WeightNames>& names) {
  const auto [layer, name] = split_layer(spec.name);
  const auto found = std::ranges::find(names, name, &WeightNames::ours);
  TESSERA_CHECK(found != names.end(), "the parameter {} has no name in a table of {}", spec.name,
                names.size());
  return {*found, layer};
}

}  // namespace

int64_t count_tensors(const Architecture& architecture, const ModelConfig& config,
                      ExpertNaming naming) {
  const std::vector<WeightNames> table = names_of(architecture, naming);
  // The small model has the first layer, whose weights differ in ZAYA1, and one more layer, which
  // stands for all others.
  ModelConfig small = config;
  small.layers = std::min<int64_t>(config.layers, 2);
  if (config.mixture()) small.experts = small.experts_per_token = 1;
  int64_t count = 0;
  const ParameterList parameters = model_parameters(small, DType::f32);
  for (const ParameterSpec& spec : parameters.specs()) {
    const auto [names, layer] = find_names(spec, table);
    if (names.part > 0) continue;  // in the tensor that was counted for part 0
    const bool single = names.theirs.find('@') != std::string_view::npos;
    count += (layer == "1" ? config.layers - 1 : 1) * (single ? config.experts : 1);
  }
  return count;
}

WeightMap weight_map(const Architecture& architecture, const ModelConfig& config,
                     ExpertNaming naming) {
  const std::vector<WeightNames> table = names_of(architecture, naming);
  MapWriter writer(config);
  const ParameterList parameters = model_parameters(config, DType::f32);
  for (const ParameterSpec& spec : parameters.specs()) {
    const auto [names, layer] = find_names(spec, table);
    writer.add(spec, names, layer);
  }
  return writer.finish();
}

}  // namespace tessera::hugging_face
