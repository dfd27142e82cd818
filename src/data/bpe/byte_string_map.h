#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// Returns a hash of a byte string. It is fast for short strings and is not for storage.
uint64_t hash_of_key(std::string_view key);

/// A map from byte strings to token ids. A look-up allocates nothing.
class ByteStringMap {
 public:
  static constexpr int32_t kNone = -1;

  /// Reserves memory for `count` keys.
  explicit ByteStringMap(size_t count);

  /// Inserts `key`, which must be new and not empty. At most `count` keys fit.
  void insert(std::string_view key, int32_t id);
  /// Returns the id of `key`, or kNone.
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
