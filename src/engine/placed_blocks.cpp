#include "engine/placed_blocks.h"

#include <algorithm>
#include <bit>

namespace tessera {

void TakenOffsets::add(int64_t begin, int64_t end) {
  const auto first = std::ranges::lower_bound(ranges_, begin, {}, &Range::end);
  if (first == ranges_.end() || first->begin > end) {
    ranges_.insert(first, {begin, end});
    return;
  }
  const auto beyond = std::ranges::upper_bound(first, ranges_.end(), end, {}, &Range::begin);
  *first = {std::min(first->begin, begin), std::max(std::prev(beyond)->end, end)};
  ranges_.erase(std::next(first), beyond);
}

int64_t TakenOffsets::Search::lowest_free(int64_t offset, int64_t bytes) {
  while (limit_ < offset + bytes) {
    offset = std::max(offset, next_->end);
    ++next_;
    limit_ = next_ == end_ ? kNoLimit : next_->begin;
  }
  return offset;
}

PlacedBlocks::PlacedBlocks(int steps)
    : root_{.begin = 0, .end = std::max(steps, 1)},
      nodes_(2 * std::bit_ceil(static_cast<size_t>(root_.end))) {}

template <typename Visitor>
void PlacedBlocks::visit_halves(const NodeSteps& steps, const Interval& live,
                                const Visitor& visit) {
  const int middle = steps.begin + (steps.end - steps.begin) / 2;
  if (live.begin < middle) visit(NodeSteps{2 * steps.node, steps.begin, middle});
  if (live.end > middle) visit(NodeSteps{2 * steps.node + 1, middle, steps.end});
}

void PlacedBlocks::clear() {
  for (TreeNode& node : nodes_) {
    node.throughout.clear();
    node.sometimes.clear();
  }
}

void PlacedBlocks::add(const MemoryBlock& block, int64_t offset) {
  if (block.bytes == 0) return;
  for (const Interval& live : block.live) add(root_, live, offset, offset + block.bytes);
}

void PlacedBlocks::add(const NodeSteps& steps, const Interval& live, int64_t begin, int64_t end) {
  TreeNode& node = nodes_[steps.node];
  node.sometimes.add(begin, end);
  if (live.begin <= steps.begin && steps.end <= live.end) {
    node.throughout.add(begin, end);
    return;
  }
  visit_halves(steps, live, [&](const NodeSteps& half) { add(half, live, begin, end); });
}

int64_t PlacedBlocks::lowest_fit(const MemoryBlock& block, int64_t base) {
  if (block.bytes == 0) return base;
  taken_.clear();
  for (const Interval& live : block.live) find_taken(root_, live);
  int64_t offset = base;
  // Each set in turn raises the offset to the next one that is free in the set, until the same
  // offset is free in all of them.
  for (int64_t before = -1; before != offset;) {
    before = offset;
    for (TakenOffsets::Search& taken : taken_) offset = taken.lowest_free(offset, block.bytes);
  }
  return offset;
}

void PlacedBlocks::find_taken(const NodeSteps& steps, const Interval& live) {
  const TreeNode& node = nodes_[steps.node];
  if (node.sometimes.empty()) return;
  if (live.begin <= steps.begin && steps.end <= live.end) {
    taken_.push_back(
        node.sometimes.search());  // it includes the offsets of all nodes below this one
    return;
  }
  if (!node.throughout.empty()) taken_.push_back(node.throughout.search());
  visit_halves(steps, live, [&](const NodeSteps& half) { find_taken(half, live); });
}

}  // namespace tessera
