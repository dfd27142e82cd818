#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// A hash of byte strings that is quick for short ones; the same in one process only.
uint64_t hash_of_key(std::string_view key);

/// Byte strings to token ids. Looking up allocates nothing; the keys lie one after another.
class ByteStringMap {
 public:
  static constexpr int32_t kNone = -1;

  /// Room for `count` keys.
  explicit ByteStringMap(size_t count);

  /// `key`, which is not empty, must be new; at most so many as there is room for.
  void insert(std::string_view key, int32_t id);

  /// The id of `key`, or kNone.
  int32_t find(std::string_view key) const;

 private:
  struct Slot {
    uint64_t hash;
    uint32_t begin;
    uint32_t size;  // 0: the slot is empty
    int32_t id;
  };

  std::vector<Slot> slots_;
  uint64_t mask_ = 0;
  std::string keys_;
};

}  // namespace tessera
