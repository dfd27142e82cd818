#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/load_config.h"

namespace tessera {
namespace {

/// A model that no preset has, given for the path that checkpoint.initial names.
ModelConfig model_of(const RunConfig& named) {
  EXPECT_EQ(named.checkpoint.initial, "imported/x");
  ModelConfig model = family_preset(Family::llama);
  model.layers = 7;
  model.hidden_size = 64;
  model.heads = 4;
  model.kv_heads = 4;
  return model;
}

RunConfig parse_initial(std::string_view text, const std::vector<std::string>& overrides = {}) {
  return parse_config(text, "test.toml", overrides, model_of);
}

TEST(InitialModel, FillsTheKeysOfTheModelThatAreLeftOut) {
  const RunConfig config =
      parse_initial("[model]\nhidden_size = 128\n[checkpoint]\ninitial = \"imported/x\"\n");
  EXPECT_EQ(config.model.family, Family::llama);
  EXPECT_EQ(config.model.layers, 7);
  EXPECT_EQ(config.model.hidden_size, 128);
  EXPECT_EQ(config.checkpoint.initial, "imported/x");
}

TEST(InitialModel, IsAskedForWithTheRunsFolder) {
  const auto in_folder = [](const RunConfig& named) {
    EXPECT_EQ(named.run.directory, "runs/x");
    return model_of(named);
  };
  const std::vector<std::string> overrides{"checkpoint.initial=imported/x"};
  const RunConfig config =
      parse_config("[run]\ndirectory = \"runs/x\"\n", "test.toml", overrides, in_folder);
  EXPECT_EQ(config.model.layers, 7);
}

TEST(InitialModel, IsReadFromAnOverride) {
  EXPECT_EQ(parse_initial("", {"checkpoint.initial=imported/x"}).model.layers, 7);
}

TEST(InitialModel, WithoutOneTheFamilyFills) {
  EXPECT_EQ(parse_initial("[model]\nfamily = \"llama\"\n").model.layers, 32);
  // What a run saved names everything itself, so that nothing has to be asked.
  RunConfig config = parse_initial("[checkpoint]\ninitial = \"imported/x\"\n");
  const std::string text = to_toml(config);
  EXPECT_EQ(parse_config(text, "saved").model.layers, 7);
  config.checkpoint.initial.clear();
  EXPECT_EQ(parse_config(to_toml(config), "saved").checkpoint.initial, "");
}

}  // namespace
}  // namespace tessera
