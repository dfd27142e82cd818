#include "model/families/families.h"

#include <map>

#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {

std::map<std::string, ModelConfig> presets() {
  std::map<std::string, ModelConfig> by_name;
  for (const ModelConfig& preset :
       {olmo_family(), olmoe_family(), llama_family(), mixtral_family()}) {
    by_name.emplace(preset.family, preset);
  }
  return by_name;
}

}  // namespace

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const auto& [name, preset] : presets()) names.push_back(name);
  return names;
}

ModelConfig family_preset(const std::string& family) {
  const auto known = presets();
  const auto found = known.find(family);
  if (found == known.end()) {
    throw Error("model.family is \"{}\"; known families are {}", family,
                join(family_names(), ", "));
  }
  return found->second;
}

}  // namespace tessera
