#include "base/hash.h"

#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace tessera {
namespace {

TEST(Hash, GivesThePublishedNumbers) {
  EXPECT_EQ(hash(""), 0x2d06800538d394c2u);  // XXH3, 64 bits, seed 0, of nothing
  EXPECT_EQ(hash_text(0x2d06u), "0000000000002d06");
}

TEST(Hash, DependsOnTheSeed) { EXPECT_NE(hash("name", 1), hash("name", 2)); }

RC_GTEST_PROP(StreamHash, OfPiecesIsTheHashOfTheWhole, ()) {
  const int length = *rc::gen::inRange(0, 2000);
  std::vector<std::byte> bytes;
  for (int i = 0; i < length; ++i) bytes.push_back(static_cast<std::byte>(i * i % 251));
  StreamHash stream;
  for (size_t at = 0; at < bytes.size();) {
    const size_t piece = std::min(*rc::gen::inRange<size_t>(0, 700), bytes.size() - at);
    stream.update(std::span(bytes).subspan(at, piece));
    at += piece;
  }
  RC_ASSERT(stream.value() == hash(std::span<const std::byte>(bytes)));
}

}  // namespace
}  // namespace tessera
