#include "base/words.h"

#include <gtest/gtest.h>

#include "support/error_of.h"

namespace tessera {

enum class Season { spring, summer, winter };
template <>
inline constexpr std::array<std::string_view, 3> kWordsOf<Season>{"spring", "high summer",
                                                                  "winter"};
enum class Wordless { one };

namespace {

static_assert(Worded<Season> && !Worded<Wordless> && !Worded<int>);

TEST(Words, EveryValueHasItsOwnAndIsFoundByIt) {
  EXPECT_EQ(word(Season::summer), "high summer");
  EXPECT_EQ(words_of<Season>(), (std::vector<std::string>{"spring", "high summer", "winter"}));
  for (const Season season : {Season::spring, Season::summer, Season::winter}) {
    EXPECT_EQ(value_of_word<Season>(word(season)), season);
    EXPECT_EQ(from_word<Season>(word(season)), season);
  }
}

TEST(Words, WhatIsNoWordIsFoundToBeNone) {
  for (const std::string_view text : {"", "Spring", "summer", "winter "}) {
    EXPECT_EQ(value_of_word<Season>(text), std::nullopt) << text;
    EXPECT_THROW(from_word<Season>(text), InternalError) << text;
  }
  EXPECT_THROW(word(static_cast<Season>(3)), InternalError);
}

TEST(Words, AnUnknownWordOfAFileIsRefusedWithTheKnownOnes) {
  EXPECT_EQ(known_word<Season>("winter", "season"), Season::winter);
  EXPECT_EQ(error_of([] { known_word<Season>("autumn", "season"); }),
            "there is no season 'autumn'; known are spring, high summer, winter");
}

}  // namespace
}  // namespace tessera
