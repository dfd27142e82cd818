#include "data/bpe/byte_string_map.h"

#include <bit>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/hash.h"

namespace tessera {
namespace {

uint64_t word(const char* bytes) {
  uint64_t value = 0;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

uint64_t half_word(const char* bytes) {
  uint32_t value = 0;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

}  // namespace

/// Nearly all keys have at most 16 bytes. Two overlapping loads then cover the key, and two
/// multiplications mix them, in a fraction of the time of a hash for any length. (The factors are
/// 2^64 divided by the golden ratio, and two of wyhash's.)
uint64_t hash_of_key(std::string_view key) {
  const size_t size = key.size();
  if (size > 16) return hash(key);
  uint64_t first = 0;
  uint64_t last = 0;
  if (size >= 8) {
    first = word(key.data());
    last = word(key.data() + size - 8);
  } else if (size >= 4) {
    first = half_word(key.data());
    last = half_word(key.data() + size - 4);
  } else if (size > 0) {
    const auto byte = [&](size_t i) { return uint64_t{static_cast<unsigned char>(key[i])}; };
    first = byte(0) | byte(size / 2) << 8 | byte(size - 1) << 16;
  }
  uint64_t mixed = (first ^ size * 0xA0761D6478BD642FULL) * 0x9E3779B97F4A7C15ULL;
  mixed = (mixed ^ mixed >> 29 ^ last) * 0xE7037ED1A0B428DBULL;
  return mixed ^ mixed >> 32;
}

ByteStringMap::ByteStringMap(size_t count)
    : slots_(std::bit_ceil(2 * count + 1), Slot{0, 0, 0, kNone}), mask_(slots_.size() - 1) {}

void ByteStringMap::insert(std::string_view key, int32_t id) {
  TESSERA_CHECK(!key.empty() && key.size() + keys_.size() <= std::numeric_limits<uint32_t>::max(),
                "a key of {} bytes does not fit behind {}", key.size(), keys_.size());
  const uint64_t hash = hash_of_key(key);
  uint64_t index = hash & mask_;
  while (slots_[index].size != 0) index = (index + 1) & mask_;
  slots_[index] = {hash, static_cast<uint32_t>(keys_.size()), static_cast<uint32_t>(key.size()),
                   id};
  keys_.append(key);
}

int32_t ByteStringMap::find(std::string_view key) const {
  const uint64_t hash = hash_of_key(key);
  for (uint64_t index = hash & mask_;; index = (index + 1) & mask_) {
    const Slot& slot = slots_[index];
    if (slot.size == 0) return kNone;
    if (slot.hash == hash && slot.size == key.size() &&
        std::memcmp(keys_.data() + slot.begin, key.data(), key.size()) == 0) {
      return slot.id;
    }
  }
}

}  // namespace tessera
