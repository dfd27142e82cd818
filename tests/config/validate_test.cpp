#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/config_test_support.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ValidateRun, SaysWhichBatchDoesNotDivideWhich) {
  EXPECT_THAT(message_of("[train]\nmicro_batch = 8\nglobal_batch = 20\n"),
              AllOf(HasSubstr("test.toml: train.micro_batch (8) does not divide "
                              "train.global_batch (20): 20 / 8 leaves 4")));
}

TEST(ValidateRun, RowsHave32BitNumbers) {
  EXPECT_THAT(message_of("[train]\nmicro_batch = 65536\nglobal_batch = 65536\n[data]\n"
                         "context = 4096\n"),
              AllOf(HasSubstr("train.micro_batch (65536) * data.context (4096) * "
                              "model.experts_per_token (8, at least 1) is 2147483648"),
                    HasSubstr("less than 2147483648")));
  EXPECT_NO_THROW(
      parse("[train]\nmicro_batch = 65536\nglobal_batch = 65536\n[data]\n"
            "context = 4095\n"));
  EXPECT_THAT(message_of("[model]\nfamily = 'llama'\n[train]\nmicro_batch = 16777216\n"
                         "global_batch = 16777216\n"),
              HasSubstr("train.micro_batch (16777216)"));
}

TEST(ValidateRun, StepsEndWithTheSchedule) {
  EXPECT_THAT(message_of("[train]\nsteps = 30\nstop_after = 31\n"),
              HasSubstr("train.stop_after (31) is larger than train.steps (30)"));
  EXPECT_THAT(message_of("", {"train.steps=30", "optimizer.warmup_steps=40"}),
              HasSubstr("optimizer.warmup_steps (40) is larger than train.steps (30)"));
  EXPECT_EQ(parse("", {"train.steps=30", "run.trace_step=40"}).run.trace_step, 40)
      << "a trace that is not written is worth a warning, not more";
  EXPECT_NO_THROW(
      parse("", {"train.steps=30", "optimizer.warmup_steps=30", "train.stop_after=30"}));
}

TEST(ValidateRun, TellsAllContradictionsAtOnce) {
  const std::string message =
      message_of("", {"train.steps=30", "optimizer.warmup_steps=40", "train.micro_batch=3",
                      "model.kv_heads=7", "checkpoint.keep_every=10", "checkpoint.every=0"});
  for (const char* part : {
           "test.toml: 4 contradictions:\n  ",
           "model.kv_heads (7) does not divide model.heads (16)",
           "train.micro_batch (3) does not divide train.global_batch (16)",
           "optimizer.warmup_steps (40) is larger than train.steps (30)",
           "checkpoint.keep_every is 10, but checkpoint.every is 0",
       }) {
    EXPECT_THAT(message, HasSubstr(part));
  }
  // What follows from another one is not told: a head has no size here.
  EXPECT_THAT(message_of("", {"model.heads=7", "model.kv_heads=7"}),
              AllOf(HasSubstr("test.toml: model.heads (7) does not divide"),
                    ::testing::Not(HasSubstr("channels"))));
}

TEST(ValidateRun, TheDeclaredContextHoldsThatOfTheData) {
  EXPECT_THAT(message_of("", {"data.context=128", "model.max_context=64"}),
              HasSubstr("data.context (128) is larger than model.max_context (64)"));
  EXPECT_NO_THROW(parse("", {"data.context=64", "model.max_context=64"}));
  EXPECT_NO_THROW(parse("", {"data.context=128", "model.max_context=0"}));
}

TEST(ValidateRun, DevicesHaveNoDoublePrecision) {
  for (const std::string device : {"cuda", "hip", "emulated"}) {
    EXPECT_THAT(message_of("", {"run.device=" + device, "train.precision=fp64"}),
                AllOf(HasSubstr("train.precision is \"fp64\""), HasSubstr("\"" + device + "\""),
                      HasSubstr("run.device \"cpu\"")));
    EXPECT_NO_THROW(parse("", {"run.device=" + device, "train.precision=fp32"}));
  }
  EXPECT_NO_THROW(parse("", {"train.precision=fp64"}));
}

TEST(ValidateRun, GradientsOfDoublePrecisionTravelAsTheyAre) {
  EXPECT_THAT(message_of("", {"shard.gradients_wire=bf16", "train.precision=fp64"}),
              HasSubstr("shard.gradients_wire is \"bf16\" and train.precision \"fp64\""));
  EXPECT_NO_THROW(parse("", {"shard.gradients_wire=bf16", "train.precision=fp32"}));
  EXPECT_NO_THROW(parse("", {"shard.gradients_wire=bf16", "train.precision=bf16"}));
}

TEST(ValidateRun, LearningRatesAreInOrder) {
  EXPECT_THAT(message_of("[optimizer]\nlearning_rate = 1e-5\nminimum_learning_rate = 2e-5\n"),
              HasSubstr("optimizer.minimum_learning_rate (2e-05) is larger than "
                        "optimizer.learning_rate (1e-05)"));
}

TEST(ValidateRun, CheckpointsThatAreKeptAreWritten) {
  EXPECT_THAT(message_of("[checkpoint]\nevery = 100\nkeep_every = 250\n"),
              HasSubstr("checkpoint.every (100) does not divide checkpoint.keep_every (250)"));
  EXPECT_THAT(message_of("[checkpoint]\nevery = 0\nkeep_every = 250\n"),
              HasSubstr("checkpoint.keep_every is 250, but checkpoint.every is 0"));
  EXPECT_NO_THROW(parse("[checkpoint]\nevery = 100\nkeep_every = 300\n"));
}

TEST(ValidateModel, SaysWhichHeadsDoNotDivide) {
  EXPECT_THAT(
      message_of("[model]\nhidden_size = 250\nheads = 4\nkv_heads = 4\n"),
      HasSubstr("model.heads (4) does not divide model.hidden_size (250): 250 / 4 leaves 2; "
                "change one of them or set model.head_dim"));
  EXPECT_NO_THROW(parse("[model]\nhidden_size = 250\nheads = 4\nkv_heads = 4\nhead_dim = 64\n"));
  EXPECT_THAT(message_of("[model]\nheads = 16\nkv_heads = 3\n"),
              HasSubstr("model.kv_heads (3) does not divide model.heads (16)"));
  EXPECT_THAT(message_of("[model]\nheads = 2\nkv_heads = 4\n"),
              HasSubstr("model.kv_heads (4) does not divide model.heads (2)"));
}

TEST(ValidateModel, RotatedChannelsComeInPairs) {
  EXPECT_THAT(message_of("[model]\nhead_dim = 63\n"),
              HasSubstr("a head has 63 channels (model.head_dim)"));
  EXPECT_THAT(message_of("[model]\nhidden_size = 36\nheads = 4\nkv_heads = 4\n"),
              HasSubstr("a head has 9 channels (model.hidden_size / model.heads)"));
  EXPECT_THAT(message_of("[model]\nhead_dim = 64\nrotary_fraction = 0.3\n"),
              HasSubstr("model.rotary_fraction (0.3) of a head's 64 channels is 19.2"));
  EXPECT_THAT(message_of("[model]\nhead_dim = 8\nrotary_fraction = 0.001\n"),
              HasSubstr("an even number from 2 to 8"));
  EXPECT_NO_THROW(parse("[model]\nhead_dim = 64\nrotary_fraction = 0.5\n"));
}

TEST(ValidateModel, AMixtureHasItsSizes) {
  EXPECT_THAT(
      message_of("[model]\nexperts = 4\nexperts_per_token = 5\n"),
      HasSubstr("model.experts_per_token is 5; it must lie between 1 and model.experts (4)"));
  EXPECT_THAT(message_of("[model]\nexperts_per_token = 0\n"), HasSubstr("between 1 and"));
  EXPECT_THAT(message_of("[model]\nexpert_size = 0\n"),
              HasSubstr("model.expert_size is 0, but model.experts is 64"));
  EXPECT_THAT(message_of("[model]\nfeed_forward_size = 512\n"),
              HasSubstr("model.feed_forward_size is 512 in a model of 64 experts a layer"));
}

TEST(ValidateModel, ADenseModelHasItsSize) {
  EXPECT_THAT(message_of("[model]\nfamily = 'llama'\nfeed_forward_size = 0\n"),
              HasSubstr("model.feed_forward_size is 0, but a dense model needs one"));
  EXPECT_THAT(message_of("[model]\nexperts = 0\n"),
              HasSubstr("model.experts is 0, a dense model, but model.experts_per_token is 8 and "
                        "model.expert_size is 1024"));
}

TEST(ValidateModel, RefusesSizesBelowOne) {
  ModelConfig config = family_preset(Family::llama);
  EXPECT_NO_THROW(validate(config));
  config.heads = 0;
  EXPECT_EQ(error_of([&] { validate(config); }), "model.heads is 0; it must be at least 1");
}

}  // namespace
}  // namespace tessera
