#pragma once

#include <cstdint>
#include <deque>
#include <optional>

namespace tessera {

/// A map from byte offsets in a text to offsets in the source text that it was made from. The text
/// arrives in pieces, and offsets are looked up in ascending order. An entry is stored only where
/// the difference between the two offsets changes, and is dropped when a later offset is looked up.
/// So memory does not grow with the text.
class OffsetMap {
 public:
  void clear() { runs_.clear(); }

  /// Records that the text from `offset` on was made from the source from offset `source` on. Calls
  /// come in ascending order of `offset`. If `unchanged` is set, the bytes are the same. Otherwise
  /// only `offset` itself has a counterpart in the source.
  void add(int64_t offset, int64_t source, bool unchanged) {
    if (!runs_.empty()) {
      Run& last = runs_.back();
      if (last.unchanged && unchanged && offset - last.offset == source - last.source) return;
      if (last.offset == offset) {
        last = {offset, source, unchanged};
        return;
      }
    }
    runs_.push_back({offset, source, unchanged});
  }

  /// Returns the source offset for `offset` of the text, or nothing if it has none. `offset` must
  /// not be below that of an earlier call.
  std::optional<int64_t> find(int64_t offset) {
    while (runs_.size() > 1 && runs_[1].offset <= offset) runs_.pop_front();
    if (runs_.empty() || offset < runs_.front().offset) return std::nullopt;
    const Run& run = runs_.front();
    if (!run.unchanged && offset != run.offset) return std::nullopt;
    return run.source + (offset - run.offset);
  }

 private:
  /// The text from `offset` to the next run, which was made from the source from `source` on.
  struct Run {
    int64_t offset;
    int64_t source;
    bool unchanged;
  };

  std::deque<Run> runs_;
};

}  // namespace tessera
