#include "checkpoint/hugging_face/rotary_fields.h"

#include <optional>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/strict_json.h"

namespace tessera::hugging_face {
namespace {

/// A rotary embedding, as an object of config.json describes it.
struct Rope {
  double theta = 0;
  bool scaled = false;  ///< by Llama 3.1's rule, which uses the numbers below
  double factor = 0;
  double low_frequency_factor = 0;
  double high_frequency_factor = 0;
  int64_t original_context = 0;

  bool operator==(const Rope&) const = default;
};

/// The values that count if an object leaves them out.
struct RopeDefaults {
  std::optional<double> given_theta;  ///< the key rope_theta beside the object
  double theta = 0;                   ///< the architecture's value
  int64_t max_context = 0;
};

constexpr const char* kOriginalContext = "original_max_position_embeddings";

double read_theta(ConfigFields& fields, const RopeDefaults& defaults) {
  const auto theta = fields.number_above_zero("rope_theta");
  if (theta && defaults.given_theta && *theta != *defaults.given_theta) {
    throw Error("{}: rope_theta is {} beside this object, and {} in it", fields.origin(),
                *defaults.given_theta, *theta);
  }
  return theta.value_or(defaults.given_theta.value_or(defaults.theta));
}

Rope read_rope(const nlohmann::json& json, const std::string& origin,
               const RopeDefaults& defaults) {
  ConfigFields fields(json, origin);
  Rope rope{.theta = read_theta(fields, defaults)};
  const auto old_type = fields.text("type");  // the name of the key in early versions
  const std::string type = fields.text("rope_type").value_or(old_type.value_or("default"));
  if (type == "llama3") {
    rope.scaled = true;
    rope.factor = fields.required_number("factor", 1);
    rope.low_frequency_factor = fields.required_number("low_freq_factor", 0);
    rope.high_frequency_factor = fields.required_number("high_freq_factor", 0);
    rope.original_context =
        fields.size(kOriginalContext, 1, kLargestSize).value_or(defaults.max_context);
  } else if (type != "default") {
    throw Error("{}: the rope type is {}; supported are 'default' and 'llama3'", origin,
                in_quotes(type));
  }
  if (fields.number("partial_rotary_factor", 0).value_or(1) != 1) {
    fields.refuse("partial_rotary_factor", "1");
  }
  if (const auto unknown = fields.unread(); !unknown.empty()) {
    throw Error("{}: the key {} is not known for the rope type {}", origin, in_quotes(unknown[0]),
                in_quotes(type));
  }
  return rope;
}

/// Throws Error when original_max_position_embeddings beside the object contradicts the value in
/// the object. Some files have the key in both places, and some versions of the library prefer the
/// one beside it. Without a scaling, the key does not concern the rotary embedding.
void check_original_context(ConfigFields& fields, const Rope& rope) {
  if (!rope.scaled) return;
  const auto beside = fields.size(kOriginalContext, 1, kLargestSize);
  if (!beside || *beside == rope.original_context) return;
  throw Error("{}: {} is {}, but the scaling of the rotary embedding goes by {}; make them equal",
              fields.origin(), kOriginalContext, *beside, rope.original_context);
}

}  // namespace

void read_rotary(ConfigFields& fields, const Architecture& architecture, ModelConfig& model) {
  const RopeDefaults defaults{fields.number_above_zero("rope_theta"), architecture.rope_theta,
                              model.max_context};
  const auto read = [&](const char* key) -> std::optional<Rope> {
    const nlohmann::json* json = fields.find(key);
    if (json == nullptr) return std::nullopt;
    return read_rope(*json, fields.origin() + ": " + key, defaults);
  };
  const auto scaling = read("rope_scaling");
  const auto parameters = read("rope_parameters");
  if (scaling && parameters && *scaling != *parameters) {
    throw Error(
        "{}: rope_scaling ({}, with the rope_theta {}) contradicts rope_parameters ({}, with {}); "
        "the library takes rope_scaling: remove the one that is wrong",
        fields.origin(), printable(fields.find("rope_scaling")->dump()), scaling->theta,
        printable(fields.find("rope_parameters")->dump()), parameters->theta);
  }
  const Rope plain{.theta = defaults.given_theta.value_or(defaults.theta)};
  const Rope rope = parameters.value_or(scaling.value_or(plain));
  check_original_context(fields, rope);
  model.rope_theta = rope.theta;
  if (!rope.scaled) return;
  model.rope_scaling = RopeScaling::llama3;
  model.rope_factor = rope.factor;
  model.rope_low_frequency_factor = rope.low_frequency_factor;
  model.rope_high_frequency_factor = rope.high_frequency_factor;
  model.rope_original_context = rope.original_context;
}

}  // namespace tessera::hugging_face
