#include "checkpoint/hugging_face/zaya_fields.h"

#include <array>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace tessera::hugging_face {
namespace {

constexpr int64_t kTaps = 2;  // the width, in positions, of each convolution
constexpr std::array kTapKeys{"cca_time0", "cca_time1"};
// The types of layers. rope_parameters has an object for each type, even if no layer has the
// second.
constexpr const char* kLayerType = "hybrid";
constexpr const char* kSlidingType = "hybrid_sliding";
// The class's defaults if config.json leaves rope_parameters out. If rope_parameters is there, but
// its object has no partial_rotary_factor, all channels of a head are rotated.
constexpr double kDefaultTheta = 5e6;
constexpr double kDefaultFraction = 0.5;

/// Throws Error unless a size is the only one that is supported.
void require_size(ConfigFields& fields, const std::string& key, int64_t expected) {
  const auto given = fields.size(key, 1, kLargestSize);
  if (given && *given != expected) fields.refuse(key, std::to_string(expected));
}

/// Throws Error unless rope_type is left out or "default".
void require_default_rope(ConfigFields& fields) {
  const auto type = fields.text("rope_type");
  if (type && *type != "default") fields.refuse("rope_type", "\"default\"");
}

/// Reads rope_parameters, which has an object for each type of layers.
void read_rope_of_types(ConfigFields& fields, ModelConfig& model) {
  model.rope_theta = kDefaultTheta;
  model.rotary_fraction = kDefaultFraction;
  const nlohmann::json* types = fields.find("rope_parameters");
  if (types == nullptr) return;
  const std::string origin = fields.origin() + ": rope_parameters";
  ConfigFields by_type(*types, origin);
  // The published file has rope_type beside the objects of the types, too.
  require_default_rope(by_type);
  by_type.find(kSlidingType);  // marks it as read; refuse_other_layers() throws on such layers
  const nlohmann::json* layer_rope = by_type.find(kLayerType);
  if (layer_rope == nullptr) {
    throw Error("{}: the key '{}' is missing; give its rope_theta and partial_rotary_factor",
                origin, kLayerType);
  }
  ConfigFields rope(*layer_rope, origin + "." + kLayerType);
  require_default_rope(rope);
  if (rope.find("rope_theta") == nullptr) {
    throw Error("{}: the key 'rope_theta' is missing, for which the class has no default",
                rope.origin());
  }
  model.rope_theta = *rope.number_above_zero("rope_theta");
  model.rotary_fraction = rope.number_above_zero("partial_rotary_factor").value_or(1);
  if (const auto unknown = rope.unread(); !unknown.empty()) {
    throw Error("{}: the key '{}' is not known", rope.origin(), unknown[0]);
  }
  if (const auto unknown = by_type.unread(); !unknown.empty()) {
    throw Error("{}: the key '{}' is not known; known are '{}' and '{}'", origin, unknown[0],
                kLayerType, kSlidingType);
  }
}

}  // namespace

void read_zaya(ConfigFields& fields, ModelConfig& model) {
  model.expert_size = fields.required_size("moe_intermediate_size", 1, kLargestSize);
  model.experts = fields.required_size("num_experts", 1, kMostExperts);
  model.router_size = fields.required_size("router_hidden_size", 1, kLargestSize);
  require_size(fields, "num_experts_per_tok", 1);
  for (const char* key : kTapKeys) require_size(fields, key, kTaps);
  read_rope_of_types(fields, model);
}

void write_zaya(const ModelConfig& model, nlohmann::ordered_json& json) {
  json["moe_intermediate_size"] = model.expert_size;
  json["num_experts"] = model.experts;
  json["num_experts_per_tok"] = model.experts_per_token;
  json["router_hidden_size"] = model.router_size;
  for (const char* key : kTapKeys) json[key] = kTaps;
  json["layer_types"] = std::vector<std::string>(static_cast<size_t>(model.layers), kLayerType);
  const nlohmann::ordered_json rope{{"rope_type", "default"},
                                    {"rope_theta", model.rope_theta},
                                    {"partial_rotary_factor", model.rotary_fraction}};
  json["rope_parameters"] = {{kLayerType, rope}, {kSlidingType, rope}};
  json["lm_head_bias"] = false;
}

}  // namespace tessera::hugging_face
