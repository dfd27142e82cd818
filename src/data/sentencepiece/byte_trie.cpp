#include "data/sentencepiece/byte_trie.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace tessera {
namespace {

constexpr uint32_t kBlock = 256;  // units
/// The number of blocks to search for free units. Older blocks are nearly full and slow to search.
constexpr uint32_t kOpenBlocks = 16;

}  // namespace

/// A builder of a trie. The free units of the open blocks, the last few, form a ring.
class ByteTrieBuilder {
 public:
  explicit ByteTrieBuilder(std::vector<ByteTrie::Unit>& units) : units_(units) {}

  void build(const std::vector<ByteTrie::Key>& keys) {
    add_block();
    occupy(ByteTrie::kRoot, ByteTrie::kNoParent);
    pending_.push_back({ByteTrie::kRoot, 0, keys.size(), 0});
    while (!pending_.empty()) {
      const Range range = pending_.back();
      pending_.pop_back();
      assign_units(keys, range);
    }
  }

 private:
  /// The sorted keys below a node. They share their first `depth` bytes.
  struct Range {
    uint32_t node;
    size_t begin;
    size_t end;
    size_t depth;
  };

  /// Stores the value of the range's node and assigns units to its children.
  void assign_units(const std::vector<ByteTrie::Key>& keys, Range range) {
    const auto ends_here = [&](size_t i) { return keys[i].text.size() == range.depth; };
    if (range.begin < range.end && ends_here(range.begin)) {
      units_[range.node].value = keys[range.begin].value;
      while (range.begin < range.end && ends_here(range.begin)) ++range.begin;
    }
    if (range.begin == range.end) return;
    bytes_.clear();
    first_keys_.clear();
    for (size_t i = range.begin; i < range.end; ++i) {
      const auto byte = static_cast<unsigned char>(keys[i].text[range.depth]);
      if (!bytes_.empty() && bytes_.back() == byte) continue;
      bytes_.push_back(byte);
      first_keys_.push_back(i);
    }
    first_keys_.push_back(range.end);
    const uint32_t base = find_base();
    units_[range.node].base = base;
    for (size_t i = 0; i < bytes_.size(); ++i) {
      occupy(base ^ bytes_[i], range.node);
      pending_.push_back({base ^ bytes_[i], first_keys_[i], first_keys_[i + 1], range.depth + 1});
    }
  }

  /// Returns a base at which the units for all of `bytes_` are free.
  uint32_t find_base() {
    for (uint32_t unit = first_free_; unit != kNoUnit;) {
      const uint32_t base = unit ^ bytes_.front();
      const bool fits = std::ranges::all_of(bytes_, [&](unsigned char byte) {
        return units_[base ^ byte].parent == ByteTrie::kFree;
      });
      if (fits) return base;
      unit = next_[unit] == first_free_ ? kNoUnit : next_[unit];
    }
    return add_block() ^ bytes_.front();
  }

  /// Adds 256 free units and returns the first.
  uint32_t add_block() {
    const size_t begin = units_.size();
    TESSERA_CHECK(begin + kBlock < ByteTrie::kNoParent, "a trie of {} units is too large", begin);
    units_.resize(begin + kBlock);
    next_.resize(begin + kBlock);
    previous_.resize(begin + kBlock);
    if (begin >= kOpenBlocks * kBlock)
      close_block(static_cast<uint32_t>(begin) - kOpenBlocks * kBlock);
    for (uint32_t unit = static_cast<uint32_t>(begin); unit < begin + kBlock; ++unit) link(unit);
    return static_cast<uint32_t>(begin);
  }

  /// Removes the free units of the block from the ring.
  void close_block(uint32_t begin) {
    for (uint32_t unit = begin; unit < begin + kBlock; ++unit) {
      if (units_[unit].parent == ByteTrie::kFree) unlink(unit);
    }
  }

  void occupy(uint32_t unit, uint32_t parent) {
    if (unit / kBlock + kOpenBlocks >= units_.size() / kBlock) unlink(unit);
    units_[unit].parent = parent;
  }

  void link(uint32_t unit) {
    if (first_free_ == kNoUnit) {
      first_free_ = next_[unit] = previous_[unit] = unit;
      return;
    }
    next_[unit] = first_free_;
    previous_[unit] = previous_[first_free_];
    next_[previous_[unit]] = unit;
    previous_[first_free_] = unit;
  }

  void unlink(uint32_t unit) {
    if (next_[unit] == unit) {
      first_free_ = kNoUnit;
      return;
    }
    next_[previous_[unit]] = next_[unit];
    previous_[next_[unit]] = previous_[unit];
    if (first_free_ == unit) first_free_ = next_[unit];
  }

  static constexpr uint32_t kNoUnit = std::numeric_limits<uint32_t>::max();

  std::vector<ByteTrie::Unit>& units_;
  std::vector<uint32_t> next_;
  std::vector<uint32_t> previous_;
  uint32_t first_free_ = kNoUnit;
  std::vector<Range> pending_;
  std::vector<unsigned char> bytes_;  // the bytes of the children that are being assigned units
  std::vector<size_t> first_keys_;    // each child's first key, and the end
};

ByteTrie::ByteTrie(std::vector<Key> keys) : empty_(keys.empty()) {
  std::ranges::stable_sort(keys, {}, &Key::text);
  ByteTrieBuilder(units_).build(keys);
}

}  // namespace tessera
