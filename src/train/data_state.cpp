#include "train/data_state.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {

/// A source of the data, as a checkpoint records it.
struct SavedSource {
  std::string name;
  std::string fingerprint;
  double weight = 0;
  SourcePosition position;
  bool continued = false;  // by a source of the resumed run
};

std::string key_of(size_t source, const char* field) {
  return fmt::format("data.{}.{}", source, field);
}

std::vector<SavedSource> saved_sources(const CheckpointState& state) {
  std::vector<SavedSource> sources;
  const int64_t count = state.integer("data.sources");
  for (size_t i = 0; static_cast<int64_t>(i) < count; ++i) {
    sources.push_back({state.text(key_of(i, "name")),
                       state.text(key_of(i, "fingerprint")),
                       state.number(key_of(i, "weight")),
                       {state.integer(key_of(i, "epoch")), state.integer(key_of(i, "instance")),
                        state.integer(key_of(i, "drawn"))}});
  }
  return sources;
}

/// Returns the saved source that `source` continues, or null. It holds the same data, and no other
/// source continues it. If there are several, returns the one with the same name if possible.
SavedSource* find_saved(std::vector<SavedSource>& saved, const DataSource& source,
                        const std::string& fingerprint) {
  SavedSource* found = nullptr;
  for (SavedSource& candidate : saved) {
    if (candidate.continued || candidate.fingerprint != fingerprint) continue;
    if (candidate.name == source.name) return &candidate;
    if (found == nullptr) found = &candidate;
  }
  return found;
}

template <typename Sources>
double sum_of_weights(const Sources& sources) {
  double weight_sum = 0;
  for (const auto& source : sources) weight_sum += source.weight;
  return weight_sum;
}

/// Returns the shares of sources for the log: "web 70 %, code 30 %".
template <typename Sources>
std::string shares(const Sources& sources) {
  std::vector<std::string> parts;
  for (const auto& source : sources) {
    if (source.weight == 0) continue;  // of other phases
    parts.push_back(
        fmt::format("{} {:.3g} %", source.name, 100 * source.weight / sum_of_weights(sources)));
  }
  return join(parts, ", ");
}

}  // namespace

std::map<std::string, StateValue> data_values(const TrainingData& data, const LoaderState& state) {
  std::map<std::string, StateValue> values{
      {"data.sources", static_cast<int64_t>(data.sources.size())},
      {"data.tokenizer", data.tokenizer.fingerprint}};
  for (size_t i = 0; i < data.sources.size(); ++i) {
    values[key_of(i, "name")] = data.sources[i].name;
    values[key_of(i, "fingerprint")] = data.sources[i].instances->fingerprint();
    values[key_of(i, "weight")] = data.sources[i].weight;
    values[key_of(i, "epoch")] = state.sources[i].epoch;
    values[key_of(i, "instance")] = state.sources[i].instance;
    values[key_of(i, "drawn")] = state.sources[i].drawn;
  }
  return values;
}

LoaderState restored_state(const CheckpointState& saved, const TrainingData& data,
                           const std::string& origin, const Logger& logger) {
  if (saved.text("data.tokenizer") != data.tokenizer.fingerprint) {
    throw Error(
        "{} was trained with another tokenizer than that of {}; let data.directory or data.sources "
        "(and data.tokenizer) name what it was started with",
        origin, data.tokenizer.origin);
  }
  std::vector<SavedSource> sources = saved_sources(saved);
  const double weight_sum = sum_of_weights(data.sources);
  const double saved_weight_sum = sum_of_weights(sources);
  bool same_mix = true;
  LoaderState state;
  std::vector<std::string> new_sources;
  for (const DataSource& source : data.sources) {
    SavedSource* found = find_saved(sources, source, source.instances->fingerprint());
    if (found == nullptr) {
      same_mix = same_mix && source.weight == 0;
      new_sources.push_back(source.name);
      state.sources.emplace_back();
      continue;
    }
    found->continued = true;
    same_mix = same_mix && found->weight / saved_weight_sum == source.weight / weight_sum;
    state.sources.push_back(found->position);
  }
  const bool none_continues = new_sources.size() == data.sources.size();
  for (const SavedSource& source : sources) {
    if (source.continued) continue;
    if (source.weight == 0 && source.position == SourcePosition{}) continue;  // never drawn from
    same_mix = same_mix && source.weight == 0;
    if (none_continues || std::ranges::find(new_sources, source.name) != new_sources.end()) {
      throw Error(
          "{} was trained on other data than the source {} holds now; let data.directory or "
          "data.sources name what it was started with, or give other data another name",
          origin, none_continues ? data.sources.front().name : source.name);
    }
  }
  if (same_mix) return state;
  for (SourcePosition& position : state.sources) position.drawn = 0;
  logger.warn("the mix changes from {} to {}", shares(sources), shares(data.sources));
  return state;
}

}  // namespace tessera
