#include "data/offset_map.h"

namespace tessera {

void OffsetMap::add(int64_t offset, int64_t source, bool kept) {
  if (!runs_.empty()) {
    Run& last = runs_.back();
    const bool goes_on = last.kept && kept && offset - last.offset == source - last.source;
    if (goes_on) return;
    if (last.offset == offset) {
      last = {offset, source, kept};
      return;
    }
  }
  runs_.push_back({offset, source, kept});
}

std::optional<int64_t> OffsetMap::find(int64_t offset) {
  while (runs_.size() > 1 && runs_[1].offset <= offset) runs_.pop_front();
  if (runs_.empty() || offset < runs_.front().offset) return std::nullopt;
  const Run& run = runs_.front();
  if (!run.kept && offset != run.offset) return std::nullopt;
  return run.source + (offset - run.offset);
}

}  // namespace tessera
