#include "data/sentencepiece/byte_trie.h"

#include <map>
#include <string>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

namespace tessera {
namespace {

ByteTrie trie_of(const std::map<std::string, int32_t>& values) {
  std::vector<ByteTrie::Key> keys;
  for (const auto& [text, value] : values) keys.push_back({text, value});
  return ByteTrie(std::move(keys));
}

void check_longest_prefix(const std::map<std::string, int32_t>& values, const ByteTrie& trie,
                          const std::string& text) {
  size_t length = text.size();
  while (length > 0 && !values.contains(text.substr(0, length))) --length;
  const ByteTrie::Match match = trie.longest_prefix(text);
  RC_ASSERT(match.length == length);
  RC_ASSERT(match.value == (length > 0 ? values.at(text.substr(0, length)) : ByteTrie::kNone));
}

RC_GTEST_PROP(ByteTrie, FindsWhatAMapFinds, ()) {
  const auto few_bytes = rc::gen::container<std::string>(
      rc::gen::oneOf(rc::gen::element<char>('a', 'b', '\0', '\xFF'), rc::gen::arbitrary<char>()));
  std::map<std::string, int32_t> values;
  for (const std::string& key : *rc::gen::container<std::vector<std::string>>(few_bytes)) {
    if (!key.empty()) values.emplace(key, static_cast<int32_t>(values.size()));
  }
  const ByteTrie trie = trie_of(values);
  RC_ASSERT(trie.empty() == values.empty());
  for (const auto& [text, value] : values) {
    check_longest_prefix(values, trie, text);
    check_longest_prefix(values, trie, text + *few_bytes);
  }
  check_longest_prefix(values, trie, *few_bytes);
}

/// More nodes than are looked through for room at once.
TEST(ByteTrie, HoldsManyKeys) {
  std::map<std::string, int32_t> values;
  uint32_t state = 1;
  for (int32_t i = 0; i < 30000; ++i) {
    std::string key;
    for (state = state * 1664525 + 1013904223; key.size() < 2 + (state >> 28);) {
      state = state * 1664525 + 1013904223;
      key += static_cast<char>(state >> 24);
    }
    values.emplace(key, i);
  }
  const ByteTrie trie = trie_of(values);
  for (const auto& [text, value] : values) {
    const ByteTrie::Match match = trie.longest_prefix(text);
    ASSERT_EQ(match.length, text.size());
    ASSERT_EQ(match.value, value);
  }
}

TEST(ByteTrie, WithoutKeysFindsNothing) {
  const ByteTrie trie({});
  EXPECT_TRUE(trie.empty());
  EXPECT_EQ(trie.longest_prefix(std::string("\0a", 2)).length, 0U);
}

}  // namespace
}  // namespace tessera
