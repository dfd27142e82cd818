#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/config_test_support.h"
#include "config/effects.h"

namespace tessera {
namespace {

/// The repository's configs/, seen from this file.
fs::path configs_folder() { return fs::path(TESSERA_SOURCE) / "configs"; }

TEST(ShippedConfigs, AllLoadAndReadBack) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(configs_folder())) {
    if (entry.path().extension() != ".toml") continue;
    const RunConfig config = load_config(entry.path());
    EXPECT_THAT(without_effect(config, nullptr), ::testing::IsEmpty()) << entry.path();
    const std::string text = to_toml(config);
    EXPECT_EQ(to_toml(parse(text)), text) << entry.path();
    ++count;
  }
  EXPECT_GE(count, 2);
}

TEST(ShippedConfigs, TheDemoIsASmallMixtureOfExperts) {
  const RunConfig config = load_config(configs_folder() / "demo.toml");
  EXPECT_EQ(config.model.family, Family::olmoe);
  EXPECT_TRUE(config.model.mixture());
  EXPECT_LE(config.model.hidden_size, 1024);
  EXPECT_EQ(config.model.vocabulary_size, 0);
}

TEST(ShippedConfigs, TinyLlamaIsDenseWithGroupedQueries) {
  const RunConfig config = load_config(configs_folder() / "tiny-llama.toml");
  EXPECT_EQ(config.model.family, Family::llama);
  EXPECT_FALSE(config.model.mixture());
  EXPECT_LT(config.model.kv_heads, config.model.heads);
}

}  // namespace
}  // namespace tessera
