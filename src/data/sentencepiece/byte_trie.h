#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tessera {

/// A map from byte strings to numbers, which is walked one byte at a time. It is stored as a double
/// array, so that a step is one memory access (Aoe, "An Efficient Digital Search Algorithm by Using
/// a Double-Array Structure", 1989).
class ByteTrie {
 public:
  using Node = uint32_t;
  static constexpr Node kRoot = 0;
  static constexpr int32_t kNone = -1;

  struct Key {
    std::string_view text;  // not empty
    int32_t value;          // not negative
  };

  /// The longest key that a text begins with; length 0 if there is none.
  struct Match {
    size_t length = 0;
    int32_t value = kNone;
    bool may_be_longer = false;  ///< with more text there might be a longer one
  };

  /// Of keys with equal text, the first one is used.
  explicit ByteTrie(std::vector<Key> keys);

  bool empty() const { return empty_; }

  /// Moves from `node` along `byte`. Returns false, and leaves `node`, if no key continues with it.
  bool step(Node& node, char byte) const {
    const uint32_t next = units_[node].base ^ static_cast<unsigned char>(byte);
    if (units_[next].parent != node) return false;
    node = next;
    return true;
  }

  /// Returns the value of the key that ends at `node`, or kNone.
  int32_t value(Node node) const { return units_[node].value; }

  Match longest_prefix(std::string_view text) const {
    Match match;
    Node node = kRoot;
    size_t i = 0;
    for (; i < text.size() && step(node, text[i]); ++i) {
      if (value(node) != kNone) match = {i + 1, value(node)};
    }
    match.may_be_longer = i == text.size();
    return match;
  }

 private:
  friend class ByteTrieBuilder;

  static constexpr uint32_t kFree = ~uint32_t{0};
  static constexpr uint32_t kNoParent = kFree - 1;

  struct Unit {
    uint32_t base = 0;        // the child by a byte is at base ^ byte
    uint32_t parent = kFree;  // kNoParent for the root
    int32_t value = kNone;
  };

  std::vector<Unit> units_;  // their number is a multiple of 256, so base ^ byte is inside
  bool empty_;
};

}  // namespace tessera
