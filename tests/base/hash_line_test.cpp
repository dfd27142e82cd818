#include "base/hash_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/hash.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kBody = " \"format\": \"sample\",\n \"list\": [1, 2]\n}\n";

TEST(HashLine, IsTheHashOfAllThatFollows) {
  const std::string text = with_hash_line("{\n" + kBody);
  EXPECT_EQ(text, "{\n \"xxh3\": \"" + hash_text(hash(kBody)) + "\",\n" + kBody);
  EXPECT_TRUE(has_hash_line(text));
  EXPECT_NO_THROW(check_hash_line(text, "file", "mend it"));
  EXPECT_FALSE(has_hash_line("{\n" + kBody));
  EXPECT_FALSE(has_hash_line(""));
}

TEST(HashLine, AnyFlippedBitIsSeen) {
  const std::string good = with_hash_line("{\n" + kBody);
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bad = good;
    bad[bit / 8] ^= static_cast<char>(1 << (bit % 8));
    if (!has_hash_line(bad)) continue;  // which the caller refuses
    ASSERT_THAT(error_of([&] { check_hash_line(bad, "some/file", "mend it"); }),
                AllOf(HasSubstr("some/file is damaged or was edited"), HasSubstr("; mend it")))
        << bit;
  }
}

}  // namespace
}  // namespace tessera
