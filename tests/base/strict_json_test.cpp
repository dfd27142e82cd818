#include "base/strict_json.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Printable, HoldsNothingThatATerminalTakesAmiss) {
  EXPECT_EQ(printable("a\x1b[31mb\n"), "a?[31mb?");
  EXPECT_EQ(printable("x\xffy\xc3"), "x\xEF\xBF\xBDy\xEF\xBF\xBD");
  EXPECT_EQ(printable("\"gr\xc3\xbc\xc3\x9f\""), "\"gr\xc3\xbc\xc3\x9f\"");
}

TEST(Printable, IsCutBetweenCharacters) {
  EXPECT_EQ(printable(std::string(200, 'x')), std::string(200, 'x'));
  EXPECT_EQ(printable(std::string(201, 'x')), std::string(200, 'x') + "...");
  EXPECT_EQ(printable(std::string(199, 'x') + "\xc3\xbc"), std::string(199, 'x') + "...");
}

/// A reading that looked through all members after each of them would take minutes for so many.
TEST(StrictJson, ObjectsOfManyMembersAreRead) {
  std::string text = "{";
  for (int i = 0; i < 100'000; ++i) text += fmt::format("\"{}\":{{}},", i);
  EXPECT_EQ(parse_strict_json(text + "\"last\":1}", "file", 2).size(), 100'001U);
  EXPECT_THAT(error_of([&] { parse_strict_json(text + "\"0\":1}", "file", 2); }),
              HasSubstr("found the key '0' twice in one object"));
}

TEST(StrictJson, AnErrorRepeatsNoBrokenBytes) {
  const std::string message = error_of([] { parse_strict_json("{\"a\xff\": 1}", "file", 2); });
  EXPECT_THAT(message, HasSubstr("file: found text that is not valid JSON"));
  EXPECT_THAT(message, Not(HasSubstr("\xff")));
}

}  // namespace
}  // namespace tessera
