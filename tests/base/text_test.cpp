#include "base/text.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/progress.h"

namespace tessera {
namespace {

TEST(NearestName, FindsSlipsOfThePen) {
  const std::vector<std::string> names{"hidden_size", "heads", "layers", "kv_heads"};
  EXPECT_EQ(nearest_name("hiden_size", names), "hidden_size");
  EXPECT_EQ(nearest_name("head", names), "heads");
  EXPECT_EQ(nearest_name("layesr", names), "layers");
  EXPECT_EQ(nearest_name("heads", names), "heads");
}

TEST(NearestName, GivesNothingForOtherWords) {
  const std::vector<std::string> names{"hidden_size", "heads"};
  EXPECT_EQ(nearest_name("temperature", names), "");
  EXPECT_EQ(nearest_name("x", {}), "");
}

TEST(FormatBytes, UsesBinaryUnits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(int64_t{3} << 30), "3.0 GiB");
  EXPECT_EQ(format_bytes(-2048), "-2.0 KiB");
}

TEST(ParseBytes, TakesUnitsAsPeopleWriteThem) {
  EXPECT_EQ(parse_bytes("300"), 300);
  EXPECT_EQ(parse_bytes("2kB"), 2000);
  EXPECT_EQ(parse_bytes("500MB"), 500'000'000);
  EXPECT_EQ(parse_bytes("1.5 gb"), 1'500'000'000);
  EXPECT_EQ(parse_bytes("2GiB"), int64_t{2} << 30);
  for (const char* text : {"", "GB", "5 G B", "5XB", "-1", "nan", "inf", "1e300", "9300PB"}) {
    EXPECT_THROW(parse_bytes(text), Error) << text;
  }
}

TEST(FormatCount, KeepsThreeDigits) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1.00 k");
  EXPECT_EQ(format_count(1234567), "1.23 M");
  EXPECT_EQ(format_count(99960), "100 k");
  EXPECT_EQ(format_count(999600), "1.00 M");
  EXPECT_EQ(format_count(6.9e9), "6.90 G");
}

TEST(FormatDuration, ShowsTwoUnits) {
  EXPECT_EQ(format_duration(-1), "0s");
  EXPECT_EQ(format_duration(59.4), "59s");
  EXPECT_EQ(format_duration(59.6), "1m00s");
  EXPECT_EQ(format_duration(75), "1m15s");
  EXPECT_EQ(format_duration(4000), "1h06m");
  EXPECT_EQ(format_duration(90000), "1d01h");
}

TEST(Join, PutsSeparatorsBetween) {
  const std::vector<std::string> parts{"a", "b", "c"};
  EXPECT_EQ(join(parts, ", "), "a, b, c");
  EXPECT_EQ(join({}, ", "), "");
}

TEST(Table, AlignsTextLeftAndNumbersRight) {
  Table table({"name", "bytes"});
  table.add({"a", "5"});
  table.add({"longer", "1234"});
  table.add({"c", "-"});
  EXPECT_EQ(table.text(),
            "name    bytes\n"
            "a           5\n"
            "longer   1234\n"
            "c       -\n");
}

TEST(Progress, BarShowsTheTimeLeft) {
  EXPECT_EQ(Progress::bar(0.5, 30, "5 of 10"), " 50% [============            ] 5 of 10, 30s left");
  EXPECT_EQ(Progress::bar(0, 3, "0 of 10"), "  0% [                        ] 0 of 10, ? left");
}

TEST(Check, SaysWhatWasPromisedAndWhere) {
  try {
    TESSERA_CHECK(1 + 1 == 3, "sum of {}", 2);
    FAIL();
  } catch (const InternalError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("sum of 2 (invariant `1 + 1 == 3` at "), std::string::npos) << message;
    EXPECT_NE(message.find("text_test.cpp:"), std::string::npos) << message;
  }
}

TEST(FormatSeconds, TakesTheFittingUnit) {
  EXPECT_EQ(format_seconds(2.34567), "2.346 s");
  EXPECT_EQ(format_seconds(0.0123456), "12.35 ms");
  EXPECT_EQ(format_seconds(4.2e-6), "4.2 us");
}

}  // namespace
}  // namespace tessera
