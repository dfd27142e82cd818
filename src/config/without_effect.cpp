#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "config/effects.h"
#include "config/sections.h"

namespace tessera {
namespace {

/// The keys without an effect, grouped by reason.
class Reasons {
 public:
  void add(std::string reason, std::string key) {
    auto found = std::ranges::find(reasons_, reason, &Reason::text);
    if (found == reasons_.end()) found = reasons_.insert(found, {std::move(reason), {}});
    found->keys.push_back(std::move(key));
  }

  std::vector<std::string> sentences() const {
    std::vector<std::string> result;
    for (const Reason& reason : reasons_) {
      result.push_back(fmt::format("{} {} no effect: {}", enumeration(reason.keys),
                                   reason.keys.size() == 1 ? "has" : "have", reason.text));
    }
    return result;
  }

 private:
  struct Reason {
    std::string text;
    std::vector<std::string> keys;
  };
  std::vector<Reason> reasons_;
};

/// Adds the keys that are set and have no effect.
void add_keys(const std::vector<Key>& keys, const std::string& prefix, const Circumstances& here,
              Reasons& reasons) {
  for (const Key& key : keys) {
    std::string path = prefix + key.name;
    if (!here.config.given.contains(path)) continue;
    std::string why = why_without_effect(key, here);
    if (!why.empty()) reasons.add(std::move(why), std::move(path));
  }
}

}  // namespace

std::string why_without_effect(const Key& key, const Circumstances& here) {
  return key.effect.neutral == key.get(here.config) ? "" : key.effect.why_none(here);
}

std::vector<std::string> without_effect(const RunConfig& config, const Mesh* mesh) {
  const std::vector<RunPhase> phases = phases_of(config);
  Circumstances here{.config = config, .phases = phases, .mesh = mesh};
  Reasons reasons;
  for (const ConfigSection& section : all_sections()) {
    add_keys(section.keys, section.name + ".", here, reasons);
    for (const TableList& list : section.lists) {
      for (here.table = 0; here.table < list.size(config); ++here.table) {
        add_keys(list.keys(here.table),
                 fmt::format("{}.{}.{}.", section.name, list.name, here.table), here, reasons);
      }
    }
  }
  return reasons.sentences();
}

}  // namespace tessera
