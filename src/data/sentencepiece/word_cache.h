#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "data/bpe/byte_string_map.h"

namespace tessera {

/// A cache of the tokens of recent words; most words of a text are among few different ones. Each
/// hash has one slot, which holds the last word with that hash. One thread at a time may use it.
class WordCache {
 public:
  static constexpr size_t kLongestWord = 30;  // bytes
  static constexpr size_t kMostTokens = 8;

  /// An entry fills one cache line of the processor.
  struct alignas(64) Entry {
    uint8_t size = 0;   // bytes of the word
    uint8_t count = 0;  // number of tokens
    std::array<char, kLongestWord> word{};
    std::array<int32_t, kMostTokens> ids{};

    bool holds(std::string_view wanted) const {
      return size == wanted.size() && std::memcmp(word.data(), wanted.data(), size) == 0;
    }
    std::span<const int32_t> tokens() const { return std::span(ids).first(count); }
  };
  static_assert(sizeof(Entry) == 64);

  WordCache() : entries_(kEntries) {}

  /// Returns the slot of a word, which is not empty. The slot may hold another word.
  Entry& slot(std::string_view word) { return entries_[hash_of_key(word) % kEntries]; }

  static bool fits(std::string_view word, size_t tokens) {
    return word.size() <= kLongestWord && tokens <= kMostTokens;
  }

  /// Stores a word, for which fits() must hold.
  static void store(Entry& entry, std::string_view word, std::span<const int32_t> tokens) {
    entry.size = static_cast<uint8_t>(word.size());
    entry.count = static_cast<uint8_t>(tokens.size());
    std::memcpy(entry.word.data(), word.data(), word.size());
    std::memcpy(entry.ids.data(), tokens.data(), tokens.size_bytes());
  }

 private:
  static constexpr size_t kEntries = size_t{1} << 15;

  std::vector<Entry> entries_;
};

}  // namespace tessera
