#pragma once

#include <cstdint>
#include <deque>
#include <optional>

namespace tessera {

/// Maps places of a text to places of the source text that it was made from. The text arrives in
/// pieces, and places are looked up in ascending order. Only the places where the two get out of
/// step are stored.
class PlaceMap {
 public:
  void clear() { runs_.clear(); }

  /// Records that the text from `place` on was made from the source from `source` on. Places are
  /// added in ascending order. `kept`: the bytes are unchanged. Otherwise only the first place has
  /// a counterpart.
  void add(int64_t place, int64_t source, bool kept);

  /// Returns the counterpart of `place`, if it has one. `place` must not be below that of an
  /// earlier call.
  std::optional<int64_t> find(int64_t place);

 private:
  struct Run {
    int64_t place;
    int64_t source;
    bool kept;
  };

  std::deque<Run> runs_;
};

}  // namespace tessera
