#include "config/one_rank.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {

/// A key of the layout sections, and its values that describe one rank.
struct LayoutKey {
  std::string_view section;
  std::string name;
  std::vector<ConfigValue> neutral;
};

std::vector<LayoutKey> layout_keys() {
  const std::vector<ConfigValue> one{int64_t{1}};
  const std::vector<ConfigValue> placements{std::string("none"), std::string("all")};
  return {{"parallel", "tensor", one},
          {"parallel", "context", one},
          {"parallel", "context_mode", {}},
          {"parallel", "pipeline", one},
          {"parallel", "virtual_stages", one},
          {"parallel", "schedule", {}},
          {"parallel", "expert", one},
          {"parallel", "expert_exchange", {}},
          {"shard", "weights", placements},
          {"shard", "gradients", placements},
          {"shard", "optimizer", placements},
          {"shard", "secondary", {std::string("none")}},
          {"shard", "weights_wire", {}},
          {"shard", "gradients_wire", {}},
          {"shard", "levels", {}}};
}

[[noreturn]] void refuse_key(const Setting& setting, const std::vector<LayoutKey>& keys) {
  std::vector<std::string> names;
  for (const LayoutKey& key : keys) {
    if (key.section == setting.section) names.push_back(key.name);
  }
  const std::string nearest = nearest_name(setting.key, names);
  throw Error("{}: unknown key '{}' in [{}]; {}", setting.where, setting.key, setting.section,
              nearest.empty() ? "known are " + join(names, ", ")
                              : fmt::format("did you mean '{}'?", nearest));
}

/// Returns "give 1, or ", "give \"none\" or \"all\", or ".
std::string advice(const LayoutKey& key) {
  std::vector<std::string> values;
  for (const ConfigValue& value : key.neutral) values.push_back(value_text(value));
  return values.empty() ? "" : "give " + join(values, " or ") + ", or ";
}

}  // namespace

bool accepted_on_one_rank(const Setting& setting) {
  if (std::ranges::find(kOneRankSections, setting.section) == kOneRankSections.end()) return false;
  if (setting.key.empty()) return true;
  const std::vector<LayoutKey> keys = layout_keys();
  const auto key = std::ranges::find_if(keys, [&](const LayoutKey& known) {
    return known.section == setting.section && known.name == setting.key;
  });
  if (key == keys.end()) refuse_key(setting, keys);
  if (std::ranges::find(key->neutral, setting.value) != key->neutral.end()) return true;
  throw Error("{}: {}.{} = {}: this build runs one rank; {}leave the key out", setting.where,
              setting.section, setting.key, value_text(setting.value), advice(*key));
}

}  // namespace tessera
