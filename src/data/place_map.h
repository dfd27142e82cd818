#pragma once

#include <cstdint>
#include <deque>
#include <optional>

namespace tessera {

/// Where the places of a text stand in the text that it was made of, for a text that arrives in
/// pieces and is asked about in ascending order. It remembers only where the two do not keep step.
class PlaceMap {
 public:
  void clear() { runs_.clear(); }

  /// What begins at `place`, ascending, was made of what begins at `source`. `kept`: byte for byte;
  /// otherwise only its first place has a counterpart.
  void add(int64_t place, int64_t source, bool kept);

  /// The counterpart of `place`, if it has one; `place` is not below that of earlier calls.
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
