#include "config/check_context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/config_test_support.h"
#include "config/mesh_of.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

constexpr const char* kMixture =
    "[model]\nfamily = 'olmoe'\nexperts = 6\nexperts_per_token = 2\nexpert_size = 20\n"
    "layers = 2\nhidden_size = 96\nheads = 12\nkv_heads = 4\nvocabulary_size = 120\n"
    "[data]\ncontext = 96\n[train]\nmicro_batch = 2\nglobal_batch = 16\n";

/// What is said of a context that an option gives.
std::string of_option(int64_t positions, int ranks, const std::vector<std::string>& keys = {}) {
  const RunConfig config = parse(kMixture, keys);
  return error_of([&] {
    require_context(config, mesh_of(config, ranks), {"--context", positions});
  });
}

/// What is said if the configuration has it.
std::string of_key(int64_t positions, int ranks, std::vector<std::string> keys = {}) {
  keys.push_back(fmt::format("data.context={}", positions));
  return error_of([&] { mesh_of(parse(kMixture, keys), ranks); });
}

/// Expects the message of the key to end as that of the option does after its name.
void expect_same(const std::string& option, const std::string& key) {
  const std::string name = "--context", key_name = "data.context";
  const size_t at = option.find(name), key_at = key.rfind(key_name);
  ASSERT_NE(at, std::string::npos) << option;
  ASSERT_NE(key_at, std::string::npos) << key;
  EXPECT_EQ(option.substr(at + name.size()), key.substr(key_at + key_name.size()));
}

/// A sequence of one token has nothing to predict.
TEST(CheckContext, TakesTwoTokensAtLeast) {
  EXPECT_THAT(of_option(1, 1), HasSubstr("expected a whole number from 2 to 16777216"));
  EXPECT_THAT(of_key(1, 1), HasSubstr("data.context: found 1; expected a whole number from 2"));
  EXPECT_THAT(error_of([] { parse(kMixture, {"train.phases=[{steps=1, context=1}]"}); }),
              HasSubstr("train.phases.0.context: found 1; expected a whole number from 2"));
}

TEST(CheckContext, SaysOfAnOptionWhatItSaysOfTheKey) {
  expect_same(of_option(7, 2, {"parallel.tensor=2"}), of_key(7, 2, {"parallel.tensor=2"}));
  expect_same(of_option(7, 2, {"parallel.context=2"}), of_key(7, 2, {"parallel.context=2"}));
  for (const int64_t positions : {int64_t{0}, int64_t{1 << 24} + 1, int64_t{99'999'999'999}}) {
    expect_same(of_option(positions, 1), of_key(positions, 1));
  }
  const std::vector<std::string> many{"model.experts_per_token=4", "train.micro_batch=4",
                                      "train.global_batch=64"};
  expect_same(of_option(1 << 24, 16, many), of_key(1 << 24, 16, many));
}

TEST(CheckContext, TakesWhatTheKeyTakes) {
  const RunConfig config = parse(kMixture, {"parallel.context=2"});
  EXPECT_NO_THROW(require_context(config, mesh_of(config, 2), {"--context", 8}));
  EXPECT_EQ(of_option(6, 2, {"parallel.context=2"}),
            "--context (6) does not divide over parallel.context (2) and parallel.tensor (1): "
            "choose a multiple of 4");
}

TEST(CheckContext, IsWithinTheModelsOwn) {
  RunConfig config = parse(kMixture);
  config.model.max_context = 128;
  EXPECT_THAT(error_of([&] {
                require_context(config, mesh_of(config, 1), {"--context", 129});
              }),
              HasSubstr("--context (129) is larger than model.max_context (128)"));
}

}  // namespace
}  // namespace tessera
