#include "data/bpe/merge_table.h"

#include <chrono>
#include <map>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

namespace tessera {
namespace {

using Tokens = std::vector<int32_t>;

struct Merge {
  int32_t left;
  int32_t right;
  int32_t merged;
};

/// Merges by their definition: the most urgent pair that occurs, at its leftmost index.
Tokens merged_naively(Tokens tokens, const std::vector<Merge>& merges) {
  for (;;) {
    bool found = false;
    for (const auto& [left, right, merged] : merges) {
      for (size_t i = 0; i + 1 < tokens.size() && !found; ++i) {
        if (tokens[i] != left || tokens[i + 1] != right) continue;
        tokens[i] = merged;
        tokens.erase(tokens.begin() + static_cast<int64_t>(i) + 1);
        found = true;
      }
      if (found) break;
    }
    if (!found) return tokens;
  }
}

MergeTable table_of(const std::vector<Merge>& merges) {
  MergeTable table(merges.size());
  for (uint32_t rank = 0; rank < merges.size(); ++rank) {
    table.insert(merges[rank].left, merges[rank].right, rank, merges[rank].merged);
  }
  return table;
}

/// Merges of an alphabet of three, each pair at most once, that make new tokens.
std::vector<Merge> any_merges() {
  std::vector<Merge> merges;
  std::map<std::pair<int32_t, int32_t>, bool> taken;
  int32_t next = 3;
  const int count = *rc::gen::inRange(0, 25);
  for (int i = 0; i < count; ++i) {
    const int32_t left = *rc::gen::inRange<int32_t>(0, next);
    const int32_t right = *rc::gen::inRange<int32_t>(0, next);
    if (taken[{left, right}]) continue;
    taken[{left, right}] = true;
    merges.push_back({left, right, next++});
  }
  return merges;
}

RC_GTEST_PROP(MergeTable, MergesAsDefined, ()) {
  const std::vector<Merge> merges = any_merges();
  // Short pieces and long ones are merged in different ways.
  const auto length =
      *rc::gen::oneOf(rc::gen::inRange<size_t>(0, 30), rc::gen::inRange<size_t>(90, 250));
  Tokens tokens = *rc::gen::container<Tokens>(length, rc::gen::inRange<int32_t>(0, 3));
  const Tokens expected = merged_naively(tokens, merges);
  MergeTable::Scratch scratch;
  table_of(merges).merge(tokens, scratch);
  RC_ASSERT(tokens == expected);
}

TEST(MergeTable, ALaterInsertionReplacesAnEarlierOne) {
  MergeTable table(2);
  table.insert(0, 1, 0, 5);
  table.insert(0, 1, 1, 6);
  Tokens tokens{0, 1};
  MergeTable::Scratch scratch;
  table.merge(tokens, scratch);
  EXPECT_EQ(tokens, Tokens{6});
}

TEST(MergeTable, AMillionEqualBytesTakeNoQuadraticTime) {
  // Each merge doubles: 0 0 -> 1, 1 1 -> 2, ...
  std::vector<Merge> merges;
  for (int32_t i = 0; i < 10; ++i) merges.push_back({i, i, i + 1});
  const MergeTable table = table_of(merges);
  Tokens tokens(size_t{1} << 20, 0);
  MergeTable::Scratch scratch;
  const auto begin = std::chrono::steady_clock::now();
  table.merge(tokens, scratch);
  EXPECT_EQ(tokens, Tokens(size_t{1} << 10, 10));
  // A pass over the text for each merge, a million of them, would take hours.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

}  // namespace
}  // namespace tessera
