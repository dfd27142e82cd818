#pragma once

#include <cstdint>
#include <deque>
#include <optional>

namespace tessera {

/// A map from byte offsets in a text to offsets in the source text that it was made from. The text
/// arrives in pieces, and offsets are looked up in ascending order. Only the offsets at which the
/// difference of the two changes are stored.
class OffsetMap {
 public:
  void clear() { runs_.clear(); }

  /// Records that the text from `offset` on was made from the source from offset `source` on. Calls
  /// come in ascending order of `offset`. `kept`: the bytes are unchanged. Otherwise only `offset`
  /// itself has a counterpart.
  void add(int64_t offset, int64_t source, bool kept);

  /// Returns the source offset for `offset` of the text, or nothing if it has none. `offset` must
  /// not be below that of an earlier call.
  std::optional<int64_t> find(int64_t offset);

 private:
  struct Run {
    int64_t offset;
    int64_t source;
    bool kept;
  };

  std::deque<Run> runs_;
};

}  // namespace tessera
