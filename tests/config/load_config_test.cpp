#include "config/load_config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "config/config_test_support.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string repeated(std::string_view text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) result += text;
  return result;
}

/// The parser and its tables go down one call for each part.
TEST(LoadConfig, RefusesDeepKeysBeforeTheyFillTheStack) {
  const std::string deep = "a" + repeated(".a", 50000);
  EXPECT_THAT(message_of("\n" + deep + " = 1\n"), HasSubstr("test.toml:2: a key has more than 16"));
  EXPECT_THAT(message_of("[train]\nx = \"a'\" # '\ny . " + deep + " = 1"),
              HasSubstr("test.toml:3: a key has more"));
  EXPECT_THAT(message_of("[" + deep + "]"), HasSubstr("a key has more"));
  EXPECT_THAT(message_of("[train]\nx = {" + deep + " = 1}"), HasSubstr("a key has more"));
  EXPECT_THAT(message_of("", {"train.x={" + deep + "=1}"}), HasSubstr("a key has more"));
  EXPECT_THAT(message_of("", {"train." + deep + "=1"}), HasSubstr("has no list of tables"));
  EXPECT_THAT(message_of("[train]\nx = " + repeated("[", 50000)), HasSubstr("not TOML"));
  EXPECT_THAT(message_of("[train]\nx = " + repeated("{a=", 50000)), HasSubstr("not TOML"));
  // Dots of values and comments count for nothing.
  const std::string dots = repeated(".", 100);
  const std::string paths = fmt::format(
      "[run]\ndirectory = \"a\\\"{0}\" # {0}\nhardware = '{0}'\ncsv = true\n"
      "tuned_products = \"\"\"\n{0}\"\"\"",
      dots);
  EXPECT_EQ(parse(paths).run.hardware, dots);
}

TEST(LoadConfig, LeavesOutMeanDefaults) {
  const RunConfig config = parse("");
  EXPECT_EQ(config.train.steps, TrainSection{}.steps);
  EXPECT_EQ(config.optimizer.schedule, Schedule::cosine);
  EXPECT_EQ(config.run.device, Device::cpu);
  EXPECT_TRUE(config.train.recompute.empty());
}

TEST(LoadConfig, TheModelStartsFromItsFamily) {
  const RunConfig olmoe = parse("[model]\nfamily = 'olmoe'\n");
  EXPECT_EQ(olmoe.model.layers, 16);
  EXPECT_EQ(olmoe.model.experts, 64);
  EXPECT_EQ(olmoe.model.experts_per_token, 8);
  EXPECT_EQ(olmoe.model.query_key_norm, QueryKeyNorm::projection);
  EXPECT_EQ(olmoe.model.initialization_cutoff, 3);
  EXPECT_EQ(olmoe.model.vocabulary_size, 0);

  const RunConfig llama = parse("[model]\nfamily = 'llama'\n");
  EXPECT_EQ(llama.model.layers, 32);
  EXPECT_EQ(llama.model.kv_heads, 8);
  EXPECT_EQ(llama.model.feed_forward_size, 14336);
  EXPECT_EQ(llama.model.rope_theta, 5e5);
  EXPECT_FALSE(llama.model.mixture());
  EXPECT_EQ(llama.model.vocabulary_size, 0);
}

TEST(LoadConfig, KeysOverwriteTheFamilyWhereverItStands) {
  const RunConfig config = parse("[model]\nlayers = 3\nrope_theta = 20000\nfamily = 'llama'\n");
  EXPECT_EQ(config.model.layers, 3);
  EXPECT_EQ(config.model.rope_theta, 20000);
  EXPECT_EQ(config.model.hidden_size, 4096);
}

TEST(LoadConfig, ReadsEveryTypeOfKey) {
  const RunConfig config = parse(R"(
model.layers = 2
[train]
recompute = ["norm", "layer"]
seed = 7
[optimizer]
learning_rate = 1
clip_after_warmup = true
[data]
directory = "some/where"
document_mask = false
)");
  EXPECT_EQ(config.model.layers, 2);
  EXPECT_EQ(config.train.recompute, (std::vector{RecomputedBlock::norm, RecomputedBlock::layer}));
  EXPECT_EQ(config.train.seed, 7u);
  EXPECT_EQ(config.optimizer.learning_rate, 1.0);
  EXPECT_TRUE(config.optimizer.clip_after_warmup);
  EXPECT_EQ(config.data.directory, "some/where");
  EXPECT_FALSE(config.data.document_mask);
}

TEST(LoadConfig, NamesTheNearestKey) {
  EXPECT_EQ(message_of("[model]\n\nhiden_size = 3\n"),
            "test.toml:3: unknown key 'hiden_size' in [model]; did you mean 'hidden_size'?");
}

TEST(LoadConfig, NamesTheSectionOfAMisplacedKey) {
  EXPECT_EQ(message_of("[train]\nlearning_rate = 1e-3\n"),
            "test.toml:2: unknown key 'learning_rate' in [train]; it is a key of [optimizer]");
}

TEST(LoadConfig, ListsTheKeysWhereNoneIsNear) {
  EXPECT_THAT(message_of("[data]\ncolour = 1\n"),
              AllOf(HasSubstr("unknown key 'colour' in [data]"),
                    HasSubstr("known are directory, context, document_mask")));
}

TEST(LoadConfig, NamesTheNearestSection) {
  EXPECT_EQ(message_of("[modle]\n"), "test.toml:1: unknown section [modle]; did you mean [model]?");
  EXPECT_EQ(message_of("[modle]\nlayers = 3\n"),
            "test.toml:2: unknown section [modle]; did you mean [model]?");
  EXPECT_THAT(message_of("[weather]\n"),
              HasSubstr("unknown section [weather]; known are [run], [model], [data]"));
}

TEST(LoadConfig, RefusesKeysOutsideSections) {
  EXPECT_EQ(message_of("steps = 3\n"),
            "test.toml:1: the key 'steps' stands in no section; write it below [train]");
  EXPECT_THAT(message_of("colour = 3\n"), HasSubstr("stands in no section; sections are [run]"));
  EXPECT_THAT(message_of("model = 3\n"), HasSubstr("'model' is a section, not a key"));
  EXPECT_THAT(message_of("[[model]]\nlayers = 1\n"),
              HasSubstr("[[model]] begins a list of tables; write [model] once"));
}

TEST(LoadConfig, SaysWhichTypeWasFoundAndExpected) {
  EXPECT_EQ(
      message_of("[train]\nsteps = 'many'\n"),
      "test.toml:2: train.steps: found \"many\"; expected a whole number from 1 to 1099511627776");
  EXPECT_THAT(message_of("[train]\nsteps = 3.5\n"), HasSubstr("found 3.5; expected a whole"));
  EXPECT_THAT(message_of("[train]\nsteps = 3.0\n"), HasSubstr("found 3.0; expected a whole"));
  EXPECT_THAT(message_of("[train]\nprecision = 16\n"), HasSubstr("found 16; expected one of"));
  EXPECT_THAT(message_of("[run]\ndirectory = 16\n"), HasSubstr("found 16; expected a text"));
  EXPECT_THAT(message_of("[run]\ndirectory = ''\n"), HasSubstr("not an empty one"));
  EXPECT_THAT(message_of("[model]\ntied_head = 1\n"), HasSubstr("found 1; expected true or false"));
  EXPECT_THAT(message_of("[model]\nrope_theta = true\n"),
              HasSubstr("found true; expected a number of at least 1"));
  EXPECT_THAT(message_of("[train]\nrecompute = 'norm'\n"),
              HasSubstr("found \"norm\"; expected a list of \"norm\", \"attention\""));
  EXPECT_THAT(message_of("[train]\nrecompute = [1]\n"), HasSubstr("found [1]; expected a list of"));
  for (const char* array : {"[1.5]", "[1, 'norm']", "[true]", "[[1]]"}) {
    EXPECT_THAT(message_of(std::string("[train]\nrecompute = ") + array + "\n"),
                HasSubstr("found an array that holds neither texts only nor whole numbers only"));
  }
  EXPECT_THAT(message_of("[train.steps]\nx = 1\n"), HasSubstr("found a table; expected a whole"));
  EXPECT_THAT(message_of("[train]\nsteps = 2024-01-31\n"), HasSubstr("found a date"));
}

TEST(LoadConfig, SaysTheRange) {
  EXPECT_EQ(message_of("[model]\nlayers = 0\n"),
            "test.toml:2: model.layers: found 0; expected a whole number from 1 to 65536");
  EXPECT_THAT(message_of("[optimizer]\nbeta1 = 1.0\n"),
              HasSubstr("found 1.0; expected a number of at least 0 and at most 0.99999"));
  EXPECT_THAT(message_of("[model]\nrotary_fraction = 0\n"),
              HasSubstr("found 0; expected a number above 0 and at most 1"));
  EXPECT_THAT(message_of("[optimizer]\nweight_decay = -0.5\n"),
              HasSubstr("found -0.5; expected a number of at least 0"));
  EXPECT_THAT(message_of("[optimizer]\nweight_decay = nan\n"), HasSubstr("found nan; expected"));
  EXPECT_THAT(message_of("[optimizer]\nweight_decay = inf\n"), HasSubstr("found inf; expected"));
}

TEST(LoadConfig, SaysTheChoices) {
  EXPECT_EQ(message_of("[optimizer]\nschedule = 'cosin'\n"),
            "test.toml:2: optimizer.schedule: found \"cosin\"; expected one of \"cosine\", "
            "\"linear\", \"constant\"; did you mean \"cosine\"?");
  EXPECT_THAT(message_of("[train]\nprecision = 'fp8'\n"),
              HasSubstr("expected one of \"bf16\", \"fp32\", \"fp64\""));
  EXPECT_THAT(message_of("[train]\nrecompute = ['norm', 'atention']\n"),
              HasSubstr("did you mean \"attention\"?"));
  EXPECT_THAT(message_of("[train]\nrecompute = ['norm', 'norm']\n"),
              HasSubstr("each at most once"));
  EXPECT_THAT(message_of("[model]\nfamily = 'lama'\n"), HasSubstr("did you mean \"llama\"?"));
}

TEST(LoadConfig, KnowsAllDevicesWhateverTheBuildHas) {
  EXPECT_EQ(parse("[run]\ndevice = 'cuda'\n").run.device, Device::cuda);
  EXPECT_EQ(parse("", {"run.device=hip"}).run.device, Device::hip);
  EXPECT_THAT(message_of("[run]\ndevice = 'gpu'\n"),
              HasSubstr("expected one of \"cpu\", \"emulated\", \"cuda\", \"hip\""));
}

TEST(LoadConfig, KnowsMuonAndItsKeys) {
  const OptimizerConfig muon = parse(
                                   "[optimizer]\nname = 'muon'\nmuon_split = 'blocks'\n"
                                   "muon_momentum = 0.9\nmuon_steps = 6\n")
                                   .optimizer;
  EXPECT_EQ(muon.name, OptimizerName::muon);
  EXPECT_EQ(muon.muon_split, MuonSplit::blocks);
  EXPECT_EQ(muon.muon_momentum, 0.9);
  EXPECT_EQ(muon.muon_steps, 6);
  EXPECT_THAT(message_of("[optimizer]\nmuon_steps = 0\n"), HasSubstr("muon_steps"));
  EXPECT_THAT(message_of("[optimizer]\nmuon_steps = 101\n"), HasSubstr("muon_steps"));
  EXPECT_THAT(message_of("[optimizer]\nmuon_momentum = 1.0\n"), HasSubstr("muon_momentum"));
}

TEST(LoadConfig, ReadsHowSharedStateTravels) {
  const ShardConfig shard = parse(
                                "[shard]\nweights = 'all'\ngradients = 'all'\noptimizer = 'all'\n"
                                "secondary = 'node'\nweights_wire = 'int8'\n"
                                "gradients_wire = 'int4'\nblock = 64\n")
                                .shard;
  EXPECT_EQ(shard.secondary, (ShardPlacement{.level = "node"}));
  EXPECT_EQ(shard.weights_wire, WireFormat::int8);
  EXPECT_EQ(shard.secondary_wire, WireFormat::fp32);
  EXPECT_EQ(shard.gradients_wire, WireFormat::int4);
  EXPECT_EQ(shard.block, 64);
  EXPECT_THAT(message_of("[shard]\nblock = 63\n"), HasSubstr("shard.block (63) is odd"));
  EXPECT_THAT(message_of("[shard]\nweights_wire = 'int2'\n"), HasSubstr("\"int8\", \"int4\""));
}

TEST(LoadConfig, ReadsTheLayout) {
  const ParallelSection parallel =
      parse("[parallel]\ntensor = 2\ncontext = 3\nexpert = 6\nexpert_exchange = 'all_to_all'\n")
          .parallel;
  EXPECT_EQ(parallel.tensor, 2);
  EXPECT_EQ(parallel.context, 3);
  EXPECT_EQ(parallel.expert, 6);
  EXPECT_EQ(parallel.expert_exchange, ExpertExchange::all_to_all);
  EXPECT_THAT(message_of("[parallel]\ntensor = 0\n"), HasSubstr("parallel.tensor"));
}

TEST(LoadConfig, ReadsThePipeline) {
  const ParallelSection parallel =
      parse(
          "[parallel]\npipeline = 2\nvirtual_stages = 2\nschedule = 'flexible'\n"
          "consecutive_micro_batches = 3\nstage_layers = [3, 5, 5, 3]\n")
          .parallel;
  EXPECT_EQ(parallel.pipeline, 2);
  EXPECT_EQ(parallel.virtual_stages, 2);
  EXPECT_EQ(parallel.schedule, "flexible");
  EXPECT_EQ(parallel.consecutive_micro_batches, 3);
  EXPECT_EQ(parallel.stage_layers.counts, (std::vector<int64_t>{3, 5, 5, 3}));
  EXPECT_FALSE(parallel.stage_layers.balanced);
  EXPECT_EQ(parse("[parallel]\nstage_layers = []\n").parallel.stage_layers, StageLayers());
  EXPECT_THAT(message_of("[parallel]\npipeline = 0\n"), HasSubstr("parallel.pipeline"));
  EXPECT_THAT(message_of("[parallel]\nvirtual_stages = 0\n"), HasSubstr("virtual_stages"));
}

/// [parallel] alone may be for a model that another file describes.
TEST(LoadConfig, ReadsALayoutWithoutItsModel) {
  const std::string text =
      "[model]\nfamily = 'llama'\nlayers = 2\n[parallel]\npipeline = 4\nschedule = 'zb-v'\n";
  EXPECT_THAT(error_of([&] { parse_config(text, "a.toml"); }), HasSubstr("model.layers (2)"));
  const ParallelSection parallel =
      parse_parallel(text, "a.toml", std::vector<std::string>{"parallel.tensor=2"});
  EXPECT_EQ(parallel.pipeline, 4);
  EXPECT_EQ(parallel.virtual_stages, 2) << "as the schedule needs them";
  EXPECT_EQ(parallel.tensor, 2);
  EXPECT_THAT(error_of([&] { parse_parallel("[parallel]\nstages = 4\n", "a.toml"); }),
              HasSubstr("unknown key 'stages' in [parallel]"));
  EXPECT_THAT(error_of([&] { parse_parallel("[parallel]\nexpert_rows_bound = 0.5\n", "a.toml"); }),
              HasSubstr("a.toml: parallel.expert_rows_bound (0.5)"));
}

TEST(LoadConfig, RefusesPartsOfALayoutThatThisBuildLacks) {
  EXPECT_THAT(message_of("[parallel]\ncontext_mode = 'ring'\n"),
              HasSubstr("test.toml:2: parallel.context_mode = \"ring\": this build does not have "
                        "it; give \"all_gather\", or leave"));
}

TEST(LoadConfig, TakesWhatAsksForNothingOfALayout) {
  EXPECT_NO_THROW(
      parse("[parallel]\ntensor = 1\ncontext = 1\npipeline = 1\nvirtual_stages = 1\nexpert = 1\n"
            "context_mode = 'all_gather'\n"
            "[shard]\nweights = 'none'\ngradients = 'none'\noptimizer = 'none'\n"
            "secondary = 'none'\n"));
}

TEST(LoadConfig, NamesTheNearestKeyOfALayout) {
  EXPECT_THAT(message_of("[parallel]\ntenser = 1\n"),
              HasSubstr("test.toml:2: unknown key 'tenser' in [parallel]; did you mean 'tensor'?"));
  EXPECT_THAT(message_of("[shard]\ngradient_wire = 'bf16'\n"), HasSubstr("'gradients_wire'?"));
}

TEST(LoadConfig, SaysWhereATextIsNotToml) {
  EXPECT_THAT(message_of("[train]\nsteps = = 3\n"), HasSubstr("test.toml:2:9: this is not TOML: "));
  EXPECT_THAT(message_of("[train]\nsteps = 3\nsteps = 4\n"),
              AllOf(HasSubstr("test.toml:3:"), HasSubstr("this is not TOML")));
}

TEST(LoadConfig, ReadsAFileAndNamesOneThatIsMissing) {
  const TemporaryFolder folder;
  const fs::path file = folder / "a.toml";
  write_file(file, "[train]\nsteps = 12\n");
  const std::vector<std::string> overrides{"optimizer.warmup_steps=0"};
  EXPECT_EQ(load_config(file, overrides).train.steps, 12);
  EXPECT_THAT(error_of([&] { load_config(folder / "missing.toml"); }), HasSubstr("missing.toml"));
  write_file(file, "[train]\nstep = 12\n");
  EXPECT_THAT(error_of([&] { load_config(file); }),
              AllOf(HasSubstr(file.string() + ":2: "), HasSubstr("'steps'")));
}

}  // namespace
}  // namespace tessera
