#include "checkpoint/hugging_face/weight_map.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"
#include "model/model.h"

namespace tessera::hugging_face {
namespace {

/// The way in which one tensor of transformers holds several of our parameters. `none`: it holds
/// only one. `by_expert`: their rows alternate expert by expert. `by_channels`: they follow one
/// another, channels of queries before those of keys (for convolutions, in which each channel has
/// `inner` further dims of one element).
enum class Joined { none, by_expert, by_channels };

/// One kind of weight. '*' stands for the layer, '@' for the expert.
struct Row {
  std::string_view ours;
  std::string_view theirs;
  Joined joined = Joined::none;
  int64_t part = 0;
  int inner = 0;
};

constexpr std::array<Row, 14> kDense{{
    {"embedding.weight", "model.embed_tokens.weight"},
    {"layers.*.attention_norm.weight", "model.layers.*.input_layernorm.weight"},
    {"layers.*.attention.query", "model.layers.*.self_attn.q_proj.weight"},
    {"layers.*.attention.key", "model.layers.*.self_attn.k_proj.weight"},
    {"layers.*.attention.value", "model.layers.*.self_attn.v_proj.weight"},
    {"layers.*.attention.query_norm", "model.layers.*.self_attn.q_norm.weight"},
    {"layers.*.attention.key_norm", "model.layers.*.self_attn.k_norm.weight"},
    {"layers.*.attention.output", "model.layers.*.self_attn.o_proj.weight"},
    {"layers.*.feed_forward_norm.weight", "model.layers.*.post_attention_layernorm.weight"},
    {"layers.*.feed_forward.gate", "model.layers.*.mlp.gate_proj.weight"},
    {"layers.*.feed_forward.up", "model.layers.*.mlp.up_proj.weight"},
    {"layers.*.feed_forward.down", "model.layers.*.mlp.down_proj.weight"},
    {"norm.weight", "model.norm.weight"},
    {"head.weight", "lm_head.weight"},
}};

constexpr std::array<Row, 4> kSingleExperts{{
    {"layers.*.router.weight", "model.layers.*.mlp.gate.weight"},
    {"layers.*.experts.gate", "model.layers.*.mlp.experts.@.gate_proj.weight"},
    {"layers.*.experts.up", "model.layers.*.mlp.experts.@.up_proj.weight"},
    {"layers.*.experts.down", "model.layers.*.mlp.experts.@.down_proj.weight"},
}};

constexpr std::array<Row, 4> kSingleMixtralExperts{{
    {"layers.*.router.weight", "model.layers.*.block_sparse_moe.gate.weight"},
    {"layers.*.experts.gate", "model.layers.*.block_sparse_moe.experts.@.w1.weight"},
    {"layers.*.experts.up", "model.layers.*.block_sparse_moe.experts.@.w3.weight"},
    {"layers.*.experts.down", "model.layers.*.block_sparse_moe.experts.@.w2.weight"},
}};

constexpr std::array<Row, 4> kFusedExperts{{
    {"layers.*.router.weight", "model.layers.*.mlp.gate.weight"},
    {"layers.*.experts.gate", "model.layers.*.mlp.experts.gate_up_proj", Joined::by_expert, 0},
    {"layers.*.experts.up", "model.layers.*.mlp.experts.gate_up_proj", Joined::by_expert, 1},
    {"layers.*.experts.down", "model.layers.*.mlp.experts.down_proj"},
}};

/// ZAYA1's layers; experts are those of kFusedExperts.
constexpr std::array<Row, 37> kZaya{{
    {"embedding.weight", "model.embed_tokens.weight"},
    {"embedding_scale.scale", "model.input_hidden_states_scale"},
    {"embedding_scale.bias", "model.input_hidden_states_bias"},
    {"layers.*.attention_norm.weight", "model.layers.*.input_layernorm.weight"},
    {"layers.*.attention.query", "model.layers.*.self_attn.qkv_proj.q_proj.weight"},
    {"layers.*.attention.key", "model.layers.*.self_attn.qkv_proj.k_proj.weight"},
    {"layers.*.attention.value_current", "model.layers.*.self_attn.qkv_proj.v_proj_current.weight"},
    {"layers.*.attention.value_delayed", "model.layers.*.self_attn.qkv_proj.v_proj_delayed.weight"},
    {"layers.*.attention.query_depthwise.weight",
     "model.layers.*.self_attn.qkv_proj.conv_qk_depthwise.weight", Joined::by_channels, 0, 1},
    {"layers.*.attention.key_depthwise.weight",
     "model.layers.*.self_attn.qkv_proj.conv_qk_depthwise.weight", Joined::by_channels, 1, 1},
    {"layers.*.attention.query_depthwise.bias",
     "model.layers.*.self_attn.qkv_proj.conv_qk_depthwise.bias", Joined::by_channels, 0},
    {"layers.*.attention.key_depthwise.bias",
     "model.layers.*.self_attn.qkv_proj.conv_qk_depthwise.bias", Joined::by_channels, 1},
    {"layers.*.attention.query_grouped.weight",
     "model.layers.*.self_attn.qkv_proj.conv_qk_grouped.weight", Joined::by_channels, 0},
    {"layers.*.attention.key_grouped.weight",
     "model.layers.*.self_attn.qkv_proj.conv_qk_grouped.weight", Joined::by_channels, 1},
    {"layers.*.attention.query_grouped.bias",
     "model.layers.*.self_attn.qkv_proj.conv_qk_grouped.bias", Joined::by_channels, 0},
    {"layers.*.attention.key_grouped.bias",
     "model.layers.*.self_attn.qkv_proj.conv_qk_grouped.bias", Joined::by_channels, 1},
    {"layers.*.attention.temperature", "model.layers.*.self_attn.qk_norm.temp"},
    {"layers.*.attention.output", "model.layers.*.self_attn.o_proj.weight"},
    {"layers.*.attention_merge.output_scale",
     "model.layers.*.post_attention_residual_scale.hidden_states_scale"},
    {"layers.*.attention_merge.output_bias",
     "model.layers.*.post_attention_residual_scale.hidden_states_bias"},
    {"layers.*.attention_merge.residual_scale",
     "model.layers.*.post_attention_residual_scale.residual_scale"},
    {"layers.*.attention_merge.residual_bias",
     "model.layers.*.post_attention_residual_scale.residual_bias"},
    {"layers.*.feed_forward_norm.weight", "model.layers.*.post_attention_layernorm.weight"},
    {"layers.*.router.down.weight", "model.layers.*.mlp.gate.down_proj.weight"},
    {"layers.*.router.down.bias", "model.layers.*.mlp.gate.down_proj.bias"},
    {"layers.*.router.state_scale", "model.layers.*.mlp.gate.router_states_scale"},
    {"layers.*.router.norm.weight", "model.layers.*.mlp.gate.router_mlp.norm.weight"},
    {"layers.*.router.first.weight", "model.layers.*.mlp.gate.router_mlp.fc1.weight"},
    {"layers.*.router.first.bias", "model.layers.*.mlp.gate.router_mlp.fc1.bias"},
    {"layers.*.router.second.weight", "model.layers.*.mlp.gate.router_mlp.fc2.weight"},
    {"layers.*.router.second.bias", "model.layers.*.mlp.gate.router_mlp.fc2.bias"},
    {"layers.*.router.output", "model.layers.*.mlp.gate.router_mlp.out_proj.weight"},
    {"layers.*.router.balancing_biases", "model.layers.*.mlp.gate.balancing_biases"},
    {"layers.*.feed_forward_merge.output_scale",
     "model.layers.*.post_mlp_residual_scale.hidden_states_scale"},
    {"layers.*.feed_forward_merge.output_bias",
     "model.layers.*.post_mlp_residual_scale.hidden_states_bias"},
    {"layers.*.feed_forward_merge.residual_scale",
     "model.layers.*.post_mlp_residual_scale.residual_scale"},
    {"layers.*.feed_forward_merge.residual_bias",
     "model.layers.*.post_mlp_residual_scale.residual_bias"},
}};

std::vector<Row> rows_of(const Architecture& architecture, ExpertNaming naming) {
  std::vector<Row> rows(kDense.begin(), kDense.end());
  if (architecture.family == Family::zaya) {
    rows.insert(rows.begin(), kZaya.begin(), kZaya.end());
    rows.insert(rows.end(), kFusedExperts.begin(), kFusedExperts.end());
    return rows;
  }
  const auto& experts = naming == ExpertNaming::fused            ? kFusedExperts
                        : architecture.family == Family::mixtral ? kSingleMixtralExperts
                                                                 : kSingleExperts;
  if (architecture.mixture) rows.insert(rows.end(), experts.begin(), experts.end());
  return rows;
}

std::string with(std::string_view pattern, char mark, std::string_view text) {
  std::string result(pattern);
  const size_t at = result.find(mark);
  if (at != std::string::npos) result.replace(at, 1, text);
  return result;
}

/// Splits "layers.12.attention.query" into "layers.*.attention.query" and "12".
std::pair<std::string, std::string> without_layer(const std::string& name) {
  constexpr std::string_view kStart = "layers.";
  if (!name.starts_with(kStart)) return {name, ""};
  const size_t end = name.find('.', kStart.size());
  return {std::string(kStart) + "*" + name.substr(end),
          name.substr(kStart.size(), end - kStart.size())};
}

class MapWriter {
 public:
  explicit MapWriter(const ModelConfig& config) : config_(config) {}

  void add(const ParameterSpec& spec, const Row& row, const std::string& layer) {
    const size_t parameter = map_.parameters.size();
    map_.parameters.push_back({spec.name, spec.shape});
    const std::string name = with(row.theirs, '*', layer);
    if (name.find('@') != std::string::npos) {
      add_single_experts(parameter, spec.shape, name);
    } else if (row.joined == Joined::by_expert) {
      add_fused_experts(parameter, spec.shape, name, row);
    } else if (row.joined == Joined::by_channels) {
      add_channels(parameter, spec.shape, name, row);
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
  size_t tensor(const std::string& name, const Shape& shape) {
    const auto [found, added] = tensors_.emplace(name, map_.tensors.size());
    if (added) map_.tensors.push_back({name, shape});
    return found->second;
  }

  void add_single_experts(size_t parameter, const Shape& shape, const std::string& name) {
    const int64_t each = shape.elements() / config_.experts;
    for (int64_t expert = 0; expert < config_.experts; ++expert) {
      const size_t index =
          tensor(with(name, '@', std::to_string(expert)), Shape{shape[1], shape[2]});
      segments_.push_back({parameter, expert * each, index, 0, each});
    }
  }

  void add_fused_experts(size_t parameter, const Shape& shape, const std::string& name,
                         const Row& row) {
    constexpr int64_t kParts = 2;  // gate and up
    const size_t index = tensor(name, Shape{shape[0], kParts * shape[1], shape[2]});
    const int64_t each = shape.elements() / config_.experts;
    for (int64_t expert = 0; expert < config_.experts; ++expert) {
      const int64_t begin = (expert * kParts + row.part) * each;
      segments_.push_back({parameter, expert * each, index, begin, each});
    }
  }

  /// Queries have part 0 and keys part 1.
  void add_channels(size_t parameter, const Shape& shape, const std::string& name, const Row& row) {
    const int64_t queries = config_.heads * config_.head_size();
    const int64_t keys = config_.kv_heads * config_.head_size();
    std::vector<int64_t> whole{queries + keys};
    whole.insert(whole.end(), static_cast<size_t>(row.inner), 1);
    for (int dim = 1; dim < shape.rank(); ++dim) whole.push_back(shape[dim]);
    const size_t index = tensor(name, Shape(whole));
    const int64_t each = shape.elements() / shape[0];
    segments_.push_back(
        {parameter, 0, index, row.part == 0 ? 0 : queries * each, shape.elements()});
  }

  const ModelConfig& config_;
  WeightMap map_;
  std::vector<MappedSegment> segments_;
  std::map<std::string, size_t> tensors_;
};

/// Returns the row for a parameter, matched by its name without the layer, and the layer.
std::pair<Row, std::string> row_of(const ParameterSpec& spec, const std::vector<Row>& rows) {
  const auto [generic, layer] = without_layer(spec.name);
  const auto row = std::ranges::find(rows, generic, &Row::ours);
  TESSERA_CHECK(row != rows.end(), "the parameter {} has no name in a table of {}", spec.name,
                rows.size());
  return {*row, layer};
}

}  // namespace

int64_t count_tensors(const Architecture& architecture, const ModelConfig& config,
                      ExpertNaming naming) {
  const std::vector<Row> rows = rows_of(architecture, naming);
  ModelConfig small = config;  // first layer, one for all others, one expert
  small.layers = std::min<int64_t>(config.layers, 2);
  if (config.mixture()) small.experts = small.experts_per_token = 1;
  int64_t count = 0;
  const ParameterList parameters = model_parameters(small, DType::f32);
  for (const ParameterSpec& spec : parameters.specs()) {
    const auto [row, layer] = row_of(spec, rows);
    if (row.part > 0) continue;  // part of the tensor counted for part 0
    const bool single = row.theirs.find('@') != std::string_view::npos;
    count += (layer == "1" ? config.layers - 1 : 1) * (single ? config.experts : 1);
  }
  return count;
}

WeightMap weight_map(const Architecture& architecture, const ModelConfig& config,
                     ExpertNaming naming) {
  const std::vector<Row> rows = rows_of(architecture, naming);
  MapWriter writer(config);
  const ParameterList parameters = model_parameters(config, DType::f32);
  for (const ParameterSpec& spec : parameters.specs()) {
    const auto [row, layer] = row_of(spec, rows);
    writer.add(spec, row, layer);
  }
  return writer.finish();
}

}  // namespace tessera::hugging_face
