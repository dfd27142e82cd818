#include "data/place_map.h"

namespace tessera {

void PlaceMap::add(int64_t place, int64_t source, bool kept) {
  if (!runs_.empty()) {
    Run& last = runs_.back();
    const bool goes_on = last.kept && kept && place - last.place == source - last.source;
    if (goes_on) return;
    if (last.place == place) {
      last = {place, source, kept};
      return;
    }
  }
  runs_.push_back({place, source, kept});
}

std::optional<int64_t> PlaceMap::find(int64_t place) {
  while (runs_.size() > 1 && runs_[1].place <= place) runs_.pop_front();
  if (runs_.empty() || place < runs_.front().place) return std::nullopt;
  const Run& run = runs_.front();
  if (!run.kept && place != run.place) return std::nullopt;
  return run.source + (place - run.place);
}

}  // namespace tessera
