#include "train/run_data.h"

#include <algorithm>

#include "base/error.h"

// The constructor opens the data of each phase, which has the drawn sources alone. Then it gives
// every phase all sources in the configuration's order; those not drawn weigh 0 (source_at()).

namespace tessera {
namespace {

/// Returns the source with a name, or null.
const DataSource* find_source(const TrainingData& data, const std::string& name) {
  const auto found = std::ranges::find(data.sources, name, &DataSource::name);
  return found == data.sources.end() ? nullptr : &*found;
}

/// Makes phases of the same context share a source's instances, so that memory holds them once.
void share_sources(std::vector<TrainingData>& phases) {
  for (size_t i = 1; i < phases.size(); ++i) {
    for (DataSource& source : phases[i].sources) {
      for (size_t earlier = 0; earlier < i; ++earlier) {
        const DataSource* same = find_source(phases[earlier], source.name);
        if (same == nullptr || same->instances->context() != source.instances->context()) continue;
        source.instances = same->instances;
        break;
      }
    }
  }
}

/// Returns a source as a phase draws from it. If the phase does not draw from it, returns it with
/// the weight 0, as the last earlier phase has it or, if there is none, the first later one.
DataSource source_at(const std::vector<TrainingData>& drawn, size_t phase,
                     const std::string& name) {
  if (const DataSource* own = find_source(drawn[phase], name)) return *own;
  const DataSource* found = nullptr;
  for (size_t i = phase; i-- > 0 && found == nullptr;) found = find_source(drawn[i], name);
  for (size_t i = phase + 1; i < drawn.size() && found == nullptr; ++i) {
    found = find_source(drawn[i], name);
  }
  TESSERA_CHECK(found != nullptr, "no phase draws from the source {}", name);
  DataSource result = *found;
  result.weight = 0;
  return result;
}

/// Throws Error if the run evaluates and a phase has no held-out data.
void require_held_out(const TrainingData& data, const RunConfig& config,
                      const std::string& phase = "") {
  if (config.train.evaluate_every == 0) return;
  const bool any = std::ranges::any_of(data.sources, [](const DataSource& source) {
    return source.instances->instances(Split::held_out) > 0;
  });
  if (any) return;
  throw Error(
      "train.evaluate_every is {}, and no source{} has held-out data: set train.evaluate_every to "
      "0, add a source that has some, or of one {}",
      config.train.evaluate_every, phase.empty() ? "" : " of " + phase,
      empty_split_advice(Split::held_out));
}

/// Returns whether two mixes draw from the same sources in the same shares.
bool same_mix(const TrainingData& a, const TrainingData& b) {
  const auto sum = [](const TrainingData& data) {
    double weights = 0;
    for (const DataSource& source : data.sources) weights += source.weight;
    return weights;
  };
  const double sum_a = sum(a);
  const double sum_b = sum(b);
  for (size_t i = 0; i < a.sources.size(); ++i) {
    if (a.sources[i].weight / sum_a != b.sources[i].weight / sum_b) return false;
  }
  return true;
}

/// Converts a position to another context. It stays at the same token of the epoch if an instance
/// of the new context begins there. Otherwise it moves to the next instance or, if the epoch has no
/// more, to the beginning of the next epoch.
void change_context(SourcePosition& position, const InstanceSource& before,
                    const InstanceSource& now) {
  if (before.context() == now.context()) return;
  const int64_t tokens = position.instance * before.context();
  position.instance = (tokens + now.context() - 1) / now.context();
  if (position.instance < now.instances(Split::train)) return;
  position.instance = 0;
  ++position.epoch;
}

}  // namespace

RunData::RunData(const RunConfig& config, std::span<const RunPhase> phases) {
  if (config.train.phases.empty()) {
    phases_.push_back(open_data(config.data));
    require_held_out(phases_.back(), config);
    return;
  }
  const DataTokenizer tokenizer = require_tokenizer(config.data);
  std::vector<TrainingData> drawn;
  for (const RunPhase& phase : phases) {
    try {
      drawn.push_back(open_data(phase.config.data, tokenizer));
    } catch (const Error& error) {
      throw Error("{} ({} = {}): {}", phase.name, phase.context_key, phase.config.data.context,
                  error.what());
    }
    require_held_out(drawn.back(), config, phase.name);
  }
  share_sources(drawn);
  for (size_t i = 0; i < phases.size(); ++i) {
    TrainingData all{tokenizer, {}};
    for (const SourceConfig& source : named_sources(config.data)) {
      all.sources.push_back(source_at(drawn, i, source.name));
    }
    phases_.push_back(std::move(all));
  }
}

TrainingData RunData::drawn_sources(size_t phase) const {
  TrainingData result = phases_[phase];
  std::erase_if(result.sources, [](const DataSource& source) { return source.weight == 0; });
  return result;
}

LoaderState RunData::drawn_positions(size_t phase, const LoaderState& all) const {
  LoaderState result;
  for (size_t i = 0; i < all.sources.size(); ++i) {
    if (phases_[phase].sources[i].weight > 0) result.sources.push_back(all.sources[i]);
  }
  return result;
}

LoaderState RunData::with_drawn_positions(size_t phase, LoaderState all,
                                          const LoaderState& drawn) const {
  size_t next = 0;
  for (size_t i = 0; i < all.sources.size(); ++i) {
    if (phases_[phase].sources[i].weight > 0) all.sources[i] = drawn.sources[next++];
  }
  return all;
}

LoaderState RunData::entry_position(size_t phase, LoaderState state) const {
  if (phase == 0) return state;
  const TrainingData& before = phases_[phase - 1];
  const TrainingData& now = phases_[phase];
  const bool mix_stays = same_mix(before, now);
  for (size_t i = 0; i < state.sources.size(); ++i) {
    change_context(state.sources[i], *before.sources[i].instances, *now.sources[i].instances);
    if (!mix_stays) state.sources[i].drawn = 0;
  }
  return state;
}

}  // namespace tessera
