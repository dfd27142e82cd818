#include "checkpoint/hugging_face/zaya_fields.h"

#include <array>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace tessera::hugging_face {
namespace {

constexpr int64_t kTaps = 2;  // of each convolution
constexpr std::array kTapKeys{"cca_time0", "cca_time1"};
/// The names of the types of layers. rope_parameters has an object for the second even if no layer
/// has that type.
constexpr const char* kLayerType = "hybrid";
constexpr const char* kSlidingType = "hybrid_sliding";
// The class's defaults if config.json leaves rope_parameters out. If rope_parameters is there, but
// its object has no partial_rotary_factor, the whole of each head is rotated.
constexpr double kDefaultTheta = 5e6;
constexpr double kDefaultFraction = 0.5;

/// Throws Error unless a size is the only one that is supported.
void require_size(ConfigFields& fields, const std::string& key, int64_t expected) {
  const auto given = fields.size(key, 1, kLargestSize);
  if (given && *given != expected) {
    fields.refuse(key, *fields.find(key), std::to_string(expected));
  }
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
  const auto outer = by_type.text("rope_type");
  if (outer && *outer != "default") {
    by_type.refuse("rope_type", *by_type.find("rope_type"), "\"default\"");
  }
  by_type.find(kSlidingType);  // marks it as read; refuse_other_layers() throws on such layers
  const nlohmann::json* own = by_type.find(kLayerType);
  if (own == nullptr) {
    throw Error("{}: the key '{}' is missing; give its rope_theta and partial_rotary_factor",
                origin, kLayerType);
  }
  ConfigFields rope(*own, origin + "." + kLayerType);
  const auto type = rope.text("rope_type");
  if (type && *type != "default") {
    rope.refuse("rope_type", *rope.find("rope_type"), "\"default\"");
  }
  if (rope.find("rope_theta") == nullptr) {
    throw Error("{}: the key 'rope_theta' is missing, for which the class has no default",
                rope.origin());
  }
  model.rope_theta = *rope.number_above_zero("rope_theta");
  model.rotary_fraction = rope.number_above_zero("partial_rotary_factor").value_or(1);
  if (const auto rest = rope.unread(); !rest.empty()) {
    throw Error("{}: the key '{}' is not known", rope.origin(), rest[0]);
  }
  if (const auto rest = by_type.unread(); !rest.empty()) {
    throw Error("{}: the key '{}' is not known; known are '{}' and '{}'", origin, rest[0],
                kLayerType, kSlidingType);
  }
}

}  // namespace

void read_zaya(ConfigFields& fields, ModelConfig& model) {
  constexpr int64_t kMostExperts = 1 << 12;
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
