#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "config/config_test_support.h"
#include "config/differences.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kMix =
    "[data]\ncontext = 64\n"
    "[[data.sources]]\nname = \"web\"\npath = \"data/web\"\nweight = 0.7\n"
    "[[data.sources]]\npath = \"megatron/code.v2\"\nweight = 3\nheld_out = 0.05\n"
    "[train]\nsteps = 100\n";

TEST(TableList, IsReadInOrderWithDefaults) {
  const RunConfig config = parse(kMix);
  ASSERT_EQ(config.data.sources.size(), 2U);
  EXPECT_EQ(config.data.sources[0].name, "web");
  EXPECT_EQ(config.data.sources[0].weight, 0.7);
  EXPECT_EQ(config.data.sources[0].held_out, SourceConfig{}.held_out);
  EXPECT_EQ(config.data.sources[1].path, "megatron/code.v2");
  EXPECT_EQ(config.data.sources[1].weight, 3);
  EXPECT_EQ(config.data.sources[1].format, SourceFormat::automatic);
  EXPECT_EQ(config.data.directory, "");
  EXPECT_EQ(config.data.context, 64);
  EXPECT_EQ(parse("").data.directory, DataConfig{}.directory);
  const RunConfig inline_tables =
      parse("[data]\nsources = [{path = \"a\", weight = 2}, {path = \"b\"}]\n");
  EXPECT_EQ(inline_tables.data.sources.at(0).weight, 2);
  EXPECT_EQ(inline_tables.data.sources.at(1).path, "b");
}

TEST(TableList, OverridesReachOneTableByNumberOrName) {
  const RunConfig config =
      parse(kMix, {"data.sources.web.weight=0.5", "data.sources.code.v2.seed=9",
                   "data.sources.2.path=more/books"});
  ASSERT_EQ(config.data.sources.size(), 3U);
  EXPECT_EQ(config.data.sources[0].weight, 0.5);
  EXPECT_EQ(config.data.sources[1].seed, 9U);
  EXPECT_EQ(config.data.sources[2].path, "more/books");
  EXPECT_THAT(message_of(kMix, {"data.sources.wbe.weight=1"}),
              HasSubstr("there is no table wbe in [[data.sources]], which has 2 (web, code.v2)"));
  EXPECT_THAT(message_of(kMix, {"data.sources.3.weight=1"}), HasSubstr("there is no table 3"));
  EXPECT_THAT(
      message_of(kMix, {"data.sauces.0.weight=1"}),
      AllOf(HasSubstr("[data] has no list of tables 'sauces'"), HasSubstr("[[data.sources]]")));
}

TEST(TableList, OverridesReplaceTheWholeList) {
  const RunConfig other =
      parse(kMix, {"data.sources=[{path = \"x\"}, {path = \"y\", weight = 4}]"});
  ASSERT_EQ(other.data.sources.size(), 2U);
  EXPECT_EQ(other.data.sources[0].path, "x");
  EXPECT_EQ(other.data.sources[0].name, "");
  EXPECT_EQ(other.data.sources[1].weight, 4);
  const RunConfig folder = parse(kMix, {"data.sources=[]", "data.directory=data/one"});
  EXPECT_TRUE(folder.data.sources.empty());
  EXPECT_EQ(folder.data.directory, "data/one");
}

TEST(TableList, KeysAreCheckedLikeAllOthers) {
  const auto with = [](const std::string& line) {
    return message_of("[[data.sources]]\npath = \"a\"\n" + line + "\n");
  };
  EXPECT_EQ(with("wieght = 1"),
            "test.toml:3: unknown key 'wieght' in [[data.sources]]; did you mean 'weight'?");
  EXPECT_THAT(
      with("weight = 0"),
      HasSubstr(
          "test.toml:3: data.sources.0.weight: found 0; expected a number of at least 1e-30"));
  EXPECT_THAT(with("weight = -1"), HasSubstr("a number of at least 1e-30"));
  EXPECT_THAT(with("weight = nan"), HasSubstr("a number of at least 1e-30"));
  EXPECT_THAT(with("format = \"megatrom\""), HasSubstr("did you mean \"megatron\"?"));
  EXPECT_THAT(with("dtype = \"uint8\""), HasSubstr("expected one of \"header\", \"uint16\""));
  EXPECT_THAT(with("held_out = 1.5"), HasSubstr("of at least 0 and at most 1"));
  EXPECT_THAT(with("steps = 3"), HasSubstr("it is a key of [train]"));
  EXPECT_THAT(message_of("[data]\nweight = 1\n"), HasSubstr("it is a key of [[data.sources]]"));
  EXPECT_THAT(message_of("[data]\nsources = \"a\"\n"),
              HasSubstr("expected tables, each begun by [[data.sources]]"));
  EXPECT_THAT(message_of("[data]\nsorces = 3\n"), HasSubstr("did you mean 'sources'?"));
  EXPECT_THAT(message_of("[[train.steps]]\nx = 1\n"), HasSubstr("has no list of tables 'steps'"));
}

TEST(TableList, SourcesAndTheOneFolderExcludeEachOther) {
  EXPECT_THAT(message_of(kMix, {"data.directory=data/one"}),
              AllOf(HasSubstr("data.directory (\"data/one\") and [[data.sources]] are both given"),
                    HasSubstr("--set 'data.sources=[]'")));
  EXPECT_THAT(message_of(kMix, {"data.sources=[]"}), HasSubstr("there is no data"));
  EXPECT_THAT(message_of("[data]\ndirectory = \"\"\n"), HasSubstr("there is no data"));
  EXPECT_THAT(message_of("[[data.sources]]\n"), HasSubstr("has no path"));
  EXPECT_THAT(message_of("[[data.sources]]\npath = \"a/x\"\n[[data.sources]]\npath = \"b/x\"\n"),
              HasSubstr("two sources of [[data.sources]] are named \"x\""));
  EXPECT_THAT(message_of(kMix, {"data.sources.1.weight=1e10"}),
              HasSubstr("the weight of the source web is 0.7"));
}

RC_GTEST_PROP(TableList, WhatIsWrittenReadsBackToTheSameValues, ()) {
  RunConfig config = parse("");
  config.data.directory = "";
  const int count = *rc::gen::inRange(1, 5);
  for (int i = 0; i < count; ++i) {
    config.data.sources.push_back(
        {.name = *rc::gen::element<std::string>("", "n") + std::to_string(i) + "x",
         .path = *rc::gen::nonEmpty<std::string>(
             rc::gen::container<std::string>(rc::gen::element('a', '"', '\\', '\n', ' ', '*'))),
         .weight = *rc::gen::inRange(1, 1000) / 7.0,
         .format = *rc::gen::element(SourceFormat::automatic, SourceFormat::prepared,
                                     SourceFormat::megatron, SourceFormat::tokens),
         .dtype = *rc::gen::element(TokenFileType::header, TokenFileType::u16, TokenFileType::u32),
         .end_of_document = *rc::gen::element(DocumentEnds::add, DocumentEnds::present),
         .held_out = *rc::gen::inRange(0, 100) / 99.0,
         .seed = static_cast<uint64_t>(*rc::gen::inRange(0, 1000))});
  }
  const std::string text = to_toml(config);
  const RunConfig again = parse(text);
  RC_ASSERT(to_toml(again) == text);
  RC_ASSERT(differences(config, again).empty());
  RC_ASSERT(again.data.sources.size() == config.data.sources.size());
  RC_ASSERT(again.data.sources.back().path == config.data.sources.back().path);
}

TEST(TableList, DifferencesNameTheTable) {
  const RunConfig first = parse(kMix);
  const auto one = differences(first, parse(kMix, {"data.sources.1.weight=4"}));
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one[0].key, "data.sources.1.weight");
  EXPECT_EQ(one[0].first, "3.0");
  EXPECT_EQ(one[0].second, "4.0");
  const auto more = differences(first, parse(kMix, {"data.sources.2.path=x"}));
  ASSERT_EQ(more.size(), 1U);
  EXPECT_EQ(more[0].key, "data.sources");
  EXPECT_EQ(more[0].second, "3 tables");
}

TEST(TableList, TheDescriptionNamesItsKeys) {
  const std::string text = describe_keys();
  EXPECT_THAT(text, HasSubstr("\n[[data.sources]] a weighted mix of data"));
  EXPECT_THAT(text, HasSubstr("  weight = 1.0\n"));
  EXPECT_THAT(text, HasSubstr("  end_of_document = \"add\"\n"));
}

}  // namespace
}  // namespace tessera
