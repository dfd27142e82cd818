#include "config/absent_keys.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {

/// A key that this build lacks, and its values that ask for nothing.
struct AbsentKey {
  std::string_view section;
  std::string name;
  std::vector<ConfigValue> neutral;
};

std::vector<AbsentKey> absent_keys() {
  const std::vector<ConfigValue> one{int64_t{1}};
  const std::vector<ConfigValue> none{std::string("none")};
  return {{"parallel", "context_mode", {std::string("all_gather")}},
          {"parallel", "virtual_stages", one},
          {"parallel", "schedule", {}},
          {"shard", "weights", none},
          {"shard", "gradients", none},
          {"shard", "secondary", none},
          {"shard", "weights_wire", {}},
          {"shard", "levels", {}}};
}

/// Returns "give 1, or " with the values that ask for nothing; empty if there are none.
std::string advice(const AbsentKey& key) {
  std::vector<std::string> values;
  for (const ConfigValue& value : key.neutral) values.push_back(value_text(value));
  return values.empty() ? "" : "give " + join(values, " or ") + ", or ";
}

}  // namespace

bool asks_nothing_absent(const Setting& setting) {
  const std::vector<AbsentKey> keys = absent_keys();
  const auto key = std::ranges::find_if(keys, [&](const AbsentKey& known) {
    return known.section == setting.section && known.name == setting.key;
  });
  if (key == keys.end()) return false;
  if (std::ranges::find(key->neutral, setting.value) != key->neutral.end()) return true;
  throw Error("{}: {}.{} = {}: this build does not have it; {}leave the key out", setting.where,
              setting.section, setting.key, value_text(setting.value), advice(*key));
}

}  // namespace tessera
