#include <algorithm>
#include <optional>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "base/error.h"
#include "base/text.h"
#include "config/phases.h"
#include "config/rule.h"
#include "data/mix.h"
#include "data/sources/open_data.h"

namespace tessera {
namespace {

/// An entry of a phase's list of sources: "NAME" or "NAME=WEIGHT".
struct NamedWeight {
  std::string name;
  std::optional<std::string> weight;
};

std::string_view without_spaces(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

/// Returns the parts of an entry, without the spaces around them.
NamedWeight named_weight(std::string_view text) {
  const size_t equals = text.find('=');
  NamedWeight entry{.name = std::string(without_spaces(text.substr(0, equals))), .weight = {}};
  if (equals != std::string_view::npos) {
    entry.weight = std::string(without_spaces(text.substr(equals + 1)));
  }
  return entry;
}

/// Returns the weight that a text holds; nothing if it holds no valid one.
std::optional<double> weight_of(const std::string& text) {
  try {
    size_t end = 0;
    const double weight = std::stod(text, &end);
    if (end == text.size() && weight >= kMinSourceWeight && weight <= kMaxNumber) return weight;
  } catch (const std::logic_error&) {  // from stod(): not a number, or one too large
    return std::nullopt;
  }
  return std::nullopt;
}

/// Checks the list of one phase. Adds the sources that the phase draws from to `used`.
void check_list(const std::vector<std::string>& list, const std::string& key,
                const std::vector<std::string>& known, std::set<std::string>& used,
                Contradictions& found) {
  std::set<std::string> names;
  for (const std::string& text : list) {
    const NamedWeight entry = named_weight(text);
    if (std::ranges::find(known, entry.name) == known.end()) {
      found.add("{} names the source \"{}\"; expected one of [[data.sources]]{}", key, entry.name,
                known.empty() ? ", of which there are none" : ": " + join(known, ", "));
      continue;
    }
    if (!names.insert(entry.name).second) {
      found.add("{} names the source {} twice; name it once", key, entry.name);
    }
    if (entry.weight && !weight_of(*entry.weight)) {
      found.add("{}: the weight of {} is \"{}\"; expected a number of at least {} and at most {}",
                key, entry.name, *entry.weight, kMinSourceWeight, kMaxNumber);
    }
    used.insert(entry.name);
  }
}

/// Checks that no source has a smaller share than a Mix supports.
void check_shares(const std::vector<SourceConfig>& sources, const std::string& key,
                  Contradictions& found) {
  double sum = 0;
  for (const SourceConfig& source : sources) sum += source.weight;
  for (const SourceConfig& source : sources) {
    if (source.weight / sum >= Mix::kSmallestShare) continue;
    found.add("{}: the weight of {} is {} of {} in all; expected at least a share of {}", key,
              source.name, source.weight, sum, Mix::kSmallestShare);
  }
}

}  // namespace

std::vector<SourceConfig> sources_of_phase(const RunConfig& config, size_t phase) {
  const std::vector<std::string>& list = config.train.phases[phase].sources;
  if (list.empty()) return config.data.sources;
  std::vector<SourceConfig> result;
  for (const SourceConfig& source : config.data.sources) {
    for (const std::string& text : list) {
      const NamedWeight entry = named_weight(text);
      if (entry.name != source_name(source)) continue;
      result.push_back(source);
      result.back().name = entry.name;
      if (entry.weight) result.back().weight = weight_of(*entry.weight).value_or(source.weight);
      break;
    }
  }
  return result;
}

void check_phase_sources(const RunConfig& config, Contradictions& found) {
  std::vector<std::string> known;
  for (const SourceConfig& source : config.data.sources) known.push_back(source_name(source));
  std::set<std::string> used;
  for (size_t i = 0; i < config.train.phases.size(); ++i) {
    const std::vector<std::string>& list = config.train.phases[i].sources;
    const std::string key = phase_key(i, "sources");
    check_list(list, key, known, used, found);
    if (list.empty()) {
      used.insert(known.begin(), known.end());
    } else {
      check_shares(sources_of_phase(config, i), key, found);
    }
  }
  for (const std::string& name : known) {
    if (used.contains(name)) continue;
    found.add(
        "no phase draws from the source {} of [[data.sources]]; name it in one, or leave it out",
        name);
  }
}

}  // namespace tessera
