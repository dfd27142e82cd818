#include "data/bpe/merge_table.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "base/error.h"

namespace tessera {
namespace {

constexpr uint64_t kEmpty = ~uint64_t{0};    // not a pair, because ids are not negative
constexpr uint64_t kNoMerge = ~uint64_t{0};  // above all ranks
constexpr uint32_t kNoRank = ~uint32_t{0};
/// The number of tokens up to which a scan of all pairs in each step is faster than a heap.
constexpr size_t kMaxTokensToScan = 96;

uint64_t pair_of(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

/// The multiplication (by 2^64 divided by the golden ratio) carries every bit upwards. The shift
/// brings the best mixed bits down.
uint64_t hash_of_pair(uint64_t pair) {
  const uint64_t product = pair * 0x9E3779B97F4A7C15ULL;
  return product ^ product >> 32;
}

uint32_t rank_of(uint64_t candidate) { return static_cast<uint32_t>(candidate >> 32); }
int32_t merged_of(uint64_t candidate) { return static_cast<int32_t>(candidate & 0xFFFFFFFFU); }

}  // namespace

MergeTable::MergeTable(size_t count)
    : slots_(std::bit_ceil(2 * count + 1), Slot{kEmpty, 0, 0}), mask_(slots_.size() - 1) {}

MergeTable::Slot& MergeTable::slot(uint64_t pair) {
  uint64_t index = hash_of_pair(pair) & mask_;
  while (slots_[index].pair != pair && slots_[index].pair != kEmpty) index = (index + 1) & mask_;
  return slots_[index];
}

void MergeTable::insert(int32_t left, int32_t right, uint32_t rank, int32_t merged) {
  slot(pair_of(left, right)) = {pair_of(left, right), rank, merged};
}

uint64_t MergeTable::find(int32_t left, int32_t right) const {
  const uint64_t pair = pair_of(left, right);
  for (uint64_t index = hash_of_pair(pair) & mask_;; index = (index + 1) & mask_) {
    const Slot& found = slots_[index];
    if (found.pair == pair) return uint64_t{found.rank} << 32 | static_cast<uint32_t>(found.merged);
    if (found.pair == kEmpty) return kNoMerge;
  }
}

void MergeTable::merge(std::vector<int32_t>& tokens, Scratch& scratch) const {
  if (tokens.size() < 2) return;
  if (tokens.size() <= kMaxTokensToScan) {
    merge_by_scan(tokens, scratch);
  } else {
    merge_by_heap(tokens, scratch);
  }
}

void MergeTable::merge_by_scan(std::vector<int32_t>& tokens, Scratch& scratch) const {
  auto& candidates = scratch.candidates;  // [tokens - 1], for each token and its right neighbour
  candidates.clear();
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    candidates.push_back(find(tokens[i], tokens[i + 1]));
  }
  while (!candidates.empty()) {
    const auto best = std::ranges::min_element(candidates, {}, rank_of);  // leftmost of equals
    if (rank_of(*best) == kNoRank) return;
    const auto i = static_cast<size_t>(best - candidates.begin());
    tokens[i] = merged_of(*best);
    tokens.erase(tokens.begin() + static_cast<int64_t>(i) + 1);
    candidates.erase(best);
    if (i > 0) candidates[i - 1] = find(tokens[i - 1], tokens[i]);
    if (i + 1 < tokens.size()) candidates[i] = find(tokens[i], tokens[i + 1]);
  }
}

void MergeTable::merge_by_heap(std::vector<int32_t>& tokens, Scratch& scratch) const {
  const size_t count = tokens.size();
  TESSERA_CHECK(count < kNoRank, "a piece of {} bytes is too long to merge", count);
  auto& ranks = scratch.ranks;  // [count], for each token and its right neighbour
  auto& previous = scratch.previous;
  auto& next = scratch.next;        // `count` means none
  auto& heap = scratch.candidates;  // rank, then index in the low bits: leftmost of equals first
  ranks.assign(count, kNoRank);
  previous.resize(count);
  next.resize(count);
  heap.clear();
  for (size_t i = 0; i < count; ++i) {
    previous[i] = static_cast<uint32_t>(i) - 1;  // the first one's is never read
    next[i] = static_cast<uint32_t>(i) + 1;
    if (i + 1 < count) ranks[i] = rank_of(find(tokens[i], tokens[i + 1]));
    if (ranks[i] != kNoRank) heap.push_back(uint64_t{ranks[i]} << 32 | i);
  }
  const std::greater<> later;
  std::ranges::make_heap(heap, later);
  const auto renew = [&](size_t i) {
    ranks[i] = next[i] < count ? rank_of(find(tokens[i], tokens[next[i]])) : kNoRank;
    if (ranks[i] == kNoRank) return;
    heap.push_back(uint64_t{ranks[i]} << 32 | i);
    std::ranges::push_heap(heap, later);
  };
  while (!heap.empty()) {
    std::ranges::pop_heap(heap, later);
    const uint64_t top = heap.back();
    heap.pop_back();
    const auto i = static_cast<size_t>(top & 0xFFFFFFFFU);
    if (ranks[i] != rank_of(top)) continue;  // one of the two tokens has since been merged
    const uint32_t right = next[i];
    tokens[i] = merged_of(find(tokens[i], tokens[right]));
    ranks[right] = kNoRank;
    next[i] = next[right];
    if (next[i] < count) previous[next[i]] = static_cast<uint32_t>(i);
    renew(i);
    if (i > 0) renew(previous[i]);
  }
  size_t kept = 0;
  for (size_t i = 0; i < count; i = next[i]) tokens[kept++] = tokens[i];
  tokens.resize(kept);
}

}  // namespace tessera
