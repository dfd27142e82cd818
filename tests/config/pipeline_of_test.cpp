#include "config/pipeline_of.h"

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "config/config_test_support.h"
#include "config/mesh_of.h"
#include "config/phases.h"
#include "pipeline/place_messages.h"
#include "pipeline/schedule_file.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// A dense model of 16 layers, whose step has 16 sequences.
RunConfig pipeline(const std::vector<std::string>& keys) {
  return parse(
      "[model]\nfamily = 'llama'\nlayers = 16\nhidden_size = 96\nheads = 12\nkv_heads = 4\n"
      "feed_forward_size = 48\nvocabulary_size = 120\n"
      "[data]\ncontext = 96\n[train]\nmicro_batch = 1\nglobal_batch = 16\n",
      keys);
}

std::string refusal(const std::vector<std::string>& keys) {
  return error_of([&] { pipeline(keys); });
}

/// The message with which a layout that the keys allow is refused on so many ranks.
std::string refusal_on(int ranks, const std::vector<std::string>& keys) {
  const RunConfig config = pipeline(keys);
  return error_of([&] { mesh_of(config, ranks); });
}

PipelineSchedule schedule_on(int ranks, const std::vector<std::string>& keys) {
  const RunConfig config = pipeline(keys);
  return pipeline_schedule(config, mesh_of(config, ranks));
}

std::vector<int64_t> layers(const std::vector<std::string>& keys) {
  std::vector<int64_t> counts;
  for (const ChunkRange& range : chunk_ranges(pipeline(keys))) {
    counts.push_back(range.layers.end - range.layers.first);
  }
  return counts;
}

TEST(PipelineOf, OneStageRunsTheForwardAndTheBackwardOfEachMicroBatchInTurn) {
  const PipelineSchedule schedule = schedule_on(4, {});  // four data ranks with 4 micro-batches
  ASSERT_EQ(schedule.ranks.size(), 1U);
  std::vector<ScheduleEntry> expected;
  for (int micro_batch = 0; micro_batch < 4; ++micro_batch) {
    expected.emplace_back(ChunkAction{ActionKind::forward, 0, micro_batch});
    expected.emplace_back(ChunkAction{ActionKind::backward, 0, micro_batch});
  }
  EXPECT_EQ(schedule.ranks[0], expected);
}

TEST(PipelineOf, OneChunkHasThisScheduleWhateverTheKeySays) {
  for (const std::string& word : words_of<ScheduleKind>()) {
    const std::vector<std::string> keys{"parallel.schedule=" + word,
                                        "parallel.consecutive_micro_batches=99"};
    EXPECT_EQ(schedule_on(1, keys), schedule_on(1, {})) << word;
  }
  EXPECT_EQ(schedule_on(1, {"parallel.schedule=no/file"}), schedule_on(1, {}));
}

TEST(PipelineOf, TheStagesTakeRanksFromDataParallelism) {
  const RunConfig config = pipeline({"parallel.pipeline=4", "parallel.tensor=2"});
  const Mesh mesh = mesh_of(config, 16);
  EXPECT_EQ(mesh.text(), "2 tensor x 4 pipeline x 2 data");
  const PipelineShape shape = pipeline_shape(config, mesh);
  EXPECT_EQ(shape.ranks, 4);
  EXPECT_EQ(shape.chunks, 4);
  EXPECT_EQ(shape.micro_batches, 8) << "16 sequences over 2 data ranks";
  EXPECT_FALSE(shape.consecutive_micro_batches);
  EXPECT_THAT(refusal_on(12, {"parallel.pipeline=4", "parallel.tensor=2"}),
              HasSubstr("parallel.tensor (2) * parallel.pipeline (4) is 8, which does not divide "
                        "--ranks (12)"));
}

TEST(PipelineOf, TheMicroBatchesAreThoseOfThePhase) {
  const RunConfig config =
      pipeline({"parallel.pipeline=2", "optimizer.warmup_steps=0",
                "train.phases=[{steps=3}, {steps=3, global_batch=8, micro_batch=2}]"});
  const Mesh mesh = mesh_of(config, 4);
  std::vector<int> micro_batches;
  for (const RunPhase& phase : phases_of(config)) {
    micro_batches.push_back(pipeline_schedule(phase.config, mesh).micro_batches);
  }
  EXPECT_THAT(micro_batches, ElementsAre(8, 2));
}

TEST(PipelineOf, TheScheduleThatIsLeftOutFollowsFromTheChunksOfAStage) {
  EXPECT_EQ(schedule_on(4, {"parallel.pipeline=4"}),
            generate(ScheduleKind::one_forward_one_backward,
                     {.ranks = 4, .chunks = 4, .micro_batches = 16}));
  EXPECT_EQ(schedule_on(4, {"parallel.pipeline=4", "parallel.virtual_stages=2"}),
            generate(ScheduleKind::interleaved, {.ranks = 4, .chunks = 8, .micro_batches = 16}));
  EXPECT_EQ(schedule_on(1, {"parallel.virtual_stages=2"}),
            generate(ScheduleKind::interleaved, {.ranks = 1, .chunks = 2, .micro_batches = 16}));
}

TEST(PipelineOf, EveryScheduleCanBeAskedFor) {
  for (const std::string& word : words_of<ScheduleKind>()) {
    const PipelineSchedule schedule =
        schedule_on(4, {"parallel.pipeline=4", "parallel.schedule=" + word});
    EXPECT_EQ(schedule.name, word);
    const bool v = word == "zb-v" || word == "dualpipe-v";
    EXPECT_EQ(schedule.placement.chunks(), v ? 8 : 4) << word;
  }
}

TEST(PipelineOf, SchedulesDownAndUpHaveTwoChunksAStage) {
  for (const std::string word : {"zb-v", "dualpipe-v"}) {
    const std::string schedule = "parallel.schedule=" + word;
    EXPECT_EQ(pipeline({"parallel.pipeline=4", schedule}).parallel.virtual_stages, 2);
    const RunConfig written =
        parse(to_toml(pipeline({"parallel.pipeline=4", schedule})), {"parallel.tensor=2"});
    EXPECT_EQ(written.parallel.virtual_stages, 2);
    EXPECT_EQ(pipeline({schedule}).parallel.virtual_stages, 1) << "there is no pipeline";
    for (const std::string given : {"1", "3"}) {
      EXPECT_THAT(
          refusal({"parallel.pipeline=4", schedule, "parallel.virtual_stages=" + given}),
          AllOf(HasSubstr("parallel.pipeline (4) * parallel.virtual_stages (" + given + ")"),
                HasSubstr("the schedule " + word + " places 2 chunks on each stage"),
                HasSubstr("4 stages need 8 chunks"), HasSubstr("change parallel.virtual_stages")));
    }
  }
}

TEST(PipelineOf, SchedulesOfOneChunkAStageTakeNoMore) {
  for (const std::string word : {"1f1b", "zb-h1"}) {
    EXPECT_THAT(
        refusal({"parallel.pipeline=4", "parallel.virtual_stages=2", "parallel.schedule=" + word}),
        AllOf(HasSubstr("the schedule " + word + " has one chunk a stage"),
              HasSubstr("change parallel.virtual_stages or parallel.schedule")));
  }
}

TEST(PipelineOf, SchedulesNeedTheirMicroBatches) {
  const std::vector<std::string> dualpipe{"parallel.pipeline=4", "parallel.schedule=dualpipe-v"};
  EXPECT_EQ(schedule_on(8, dualpipe).micro_batches, 8);
  EXPECT_THAT(refusal_on(16, dualpipe),
              HasSubstr("train.global_batch (16) / (train.micro_batch (1) * 4 data-parallel ranks) "
                        "is 4 micro-batches a step: the schedule dualpipe-v over 4 stages needs at "
                        "least 8 micro-batches, found 4; zb-v takes any number"));
  const std::vector<std::string> interleaved{"parallel.pipeline=3", "parallel.virtual_stages=2"};
  EXPECT_THAT(refusal_on(3, interleaved),
              HasSubstr("is 16 micro-batches a step: the schedule interleaved needs a multiple of "
                        "its 3 stages in micro-batches, found 16; flexible takes any number"));
  std::vector<std::string> flexible = interleaved;
  flexible.emplace_back("parallel.schedule=flexible");
  EXPECT_EQ(schedule_on(3, flexible).micro_batches, 16);
  const RunConfig of_phases =
      pipeline({"parallel.pipeline=4", "parallel.virtual_stages=2", "optimizer.warmup_steps=0",
                "train.phases=[{steps=3}, {steps=3, global_batch=6}]"});
  EXPECT_THAT(error_of([&] { mesh_of(of_phases, 4); }),
              AllOf(HasSubstr("train.phases.1.global_batch (6) / (train.micro_batch (1)"),
                    Not(HasSubstr("train.global_batch (16)"))));
  EXPECT_THAT(refusal_on(2, {"parallel.pipeline=2", "train.global_batch=1073741824"}),
              HasSubstr("is 1073741824 micro-batches a step, and parallel.pipeline (2)"));
}

TEST(PipelineOf, ConsecutiveMicroBatchesAreAsManyAsThereAre) {
  const std::vector<std::string> keys{"parallel.pipeline=4", "parallel.virtual_stages=2",
                                      "parallel.schedule=gpipe",
                                      "parallel.consecutive_micro_batches=8"};
  EXPECT_EQ(
      schedule_on(4, keys),
      generate(ScheduleKind::all_forward_all_backward,
               {.ranks = 4, .chunks = 8, .micro_batches = 16, .consecutive_micro_batches = 8}));
  EXPECT_EQ(schedule_on(8, keys).micro_batches, 8);
  EXPECT_THAT(refusal_on(16, keys),
              HasSubstr("parallel.consecutive_micro_batches (8): train.global_batch (16) / "
                        "(train.micro_batch (1) * 4 data-parallel ranks) is 4 micro-batches a "
                        "step; expected at most that, or 0"));
  std::vector<std::string> others = keys;
  others[2] = "parallel.schedule=interleaved";
  EXPECT_NO_THROW(schedule_on(16, others)) << "a key without an effect is no error";
  EXPECT_THAT(refusal({"parallel.consecutive_micro_batches=-1"}),
              HasSubstr("found -1; expected a whole number from 0"));
}

/// That is why the key has no effect then (config/effects.h).
RC_GTEST_PROP(PipelineOf, ConsecutiveMicroBatchesChangeNothingForOneChunkAStage, ()) {
  const int ranks = *rc::gen::inRange(1, 6);
  const int micro_batches = *rc::gen::inRange(1, 12);
  const int consecutive = *rc::gen::inRange(1, micro_batches + 1);
  for (const ScheduleKind kind : {ScheduleKind::all_forward_all_backward, ScheduleKind::flexible}) {
    PipelineShape shape{.ranks = ranks, .chunks = ranks, .micro_batches = micro_batches};
    const PipelineSchedule without = generate(kind, shape);
    shape.consecutive_micro_batches = consecutive;
    RC_ASSERT(generate(kind, shape) == without);
  }
}

TEST(PipelineOf, LayersAreDividedAsEvenlyAsPossible) {
  EXPECT_THAT(layers({}), ElementsAre(16));
  EXPECT_THAT(layers({"parallel.pipeline=4"}), ElementsAre(4, 4, 4, 4));
  EXPECT_THAT(layers({"parallel.pipeline=3"}), ElementsAre(5, 6, 5));
  EXPECT_THAT(layers({"parallel.pipeline=3", "model.layers=17"}), ElementsAre(6, 6, 5));
  EXPECT_THAT(layers({"parallel.pipeline=2", "parallel.virtual_stages=3"}),
              ElementsAre(2, 3, 3, 3, 3, 2));
}

RC_GTEST_PROP(PipelineOf, TheRangesAreTheModelInItsOrder, ()) {
  RunConfig config;
  config.parallel.pipeline = *rc::gen::inRange<int64_t>(1, 9);
  config.parallel.virtual_stages = *rc::gen::inRange<int64_t>(1, 4);
  const int64_t chunks = model_chunks(config.parallel);
  config.model.layers = chunks + *rc::gen::inRange<int64_t>(0, 50);
  const std::vector<ChunkRange> ranges = chunk_ranges(config);
  RC_ASSERT(std::ssize(ranges) == chunks);
  int64_t first = 0;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const LayerRange& range = ranges[i].layers;
    RC_ASSERT(range.first == first);
    first = range.end;
    const int64_t size = range.end - range.first;
    RC_ASSERT(size == config.model.layers / chunks || size == config.model.layers / chunks + 1);
    RC_ASSERT(size >= ranges.back().layers.end - ranges.back().layers.first);
    RC_ASSERT(ranges[i].embedding == (i == 0));
    RC_ASSERT(ranges[i].head == (i + 1 == ranges.size()));
  }
  RC_ASSERT(first == config.model.layers);
}

TEST(PipelineOf, LayersCanBeGiven) {
  EXPECT_THAT(layers({"parallel.pipeline=4", "parallel.stage_layers=[0, 7, 8, 1]"}),
              ElementsAre(0, 7, 8, 1));
  EXPECT_THAT(layers({"parallel.stage_layers=[0, 7, 8, 1]"}), ElementsAre(16))
      << "there is one chunk";
  const RunConfig balanced = pipeline({"parallel.pipeline=4", "parallel.stage_layers=balanced"});
  EXPECT_TRUE(balanced.parallel.stage_layers.balanced);
  EXPECT_EQ(parse(to_toml(balanced)).parallel.stage_layers, balanced.parallel.stage_layers);
  EXPECT_THROW(chunk_ranges(balanced), InternalError) << "nobody has balanced them";
}

TEST(PipelineOf, RefusesLayersThatDoNotSuitTheChunks) {
  const std::string stages = "parallel.pipeline=4";
  EXPECT_THAT(refusal({stages, "parallel.stage_layers=[8, 8]"}),
              HasSubstr("parallel.stage_layers has 2 numbers; expected one for each chunk, and "
                        "parallel.pipeline (4) * parallel.virtual_stages (1) is 4 chunks"));
  EXPECT_THAT(refusal({stages, "parallel.stage_layers=[4, 4, 4, 5]"}),
              HasSubstr("the numbers of parallel.stage_layers add up to 17; expected model.layers "
                        "(16)"));
  EXPECT_THAT(refusal({stages, "parallel.stage_layers=[8, 0, 8, 0]"}),
              HasSubstr("parallel.stage_layers gives 0 to chunk 1 of 4"));
  EXPECT_THAT(refusal({stages, "parallel.stage_layers=[-1, 17, 0, 0]"}),
              HasSubstr("found [-1, 17, 0, 0]; expected a list of whole numbers from 0 to 65536, "
                        "or \"balanced\""));
  for (const char* other : {"['4', '4']", "[4.0]", "[4, '4']", "4", "even"}) {
    EXPECT_THAT(refusal({stages, std::string("parallel.stage_layers=") + other}),
                HasSubstr("expected a list of whole numbers"));
  }
  EXPECT_THAT(refusal({"parallel.stage_layers=balance"}), HasSubstr("did you mean \"balanced\"?"));
}

TEST(PipelineOf, RefusesMoreChunksThanLayers) {
  EXPECT_NO_THROW(pipeline({"parallel.pipeline=16"}));
  EXPECT_THAT(
      refusal({"parallel.pipeline=9", "parallel.virtual_stages=2"}),
      HasSubstr("parallel.pipeline (9) * parallel.virtual_stages (2) is 18 chunks, too many "
                "for model.layers (16); lower one of the two, or give "
                "parallel.stage_layers with 0 for the first and the last chunk"));
  EXPECT_NO_THROW(pipeline({"parallel.pipeline=18", "parallel.stage_layers=balanced"}));
  EXPECT_NO_THROW(pipeline(
      {"parallel.pipeline=18", "parallel.stage_layers=[0,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,0]"}));
  for (const std::string value : {"[]", "balanced"}) {
    EXPECT_THAT(refusal({"parallel.pipeline=19", "parallel.stage_layers=" + value}),
                AllOf(HasSubstr("is 19 chunks, too many for model.layers (16)"),
                      Not(HasSubstr("with 0 for"))));
  }
}

TEST(PipelineOf, ALossOverAllLayersCanBeInSeveralChunks) {
  const std::vector<std::string> keys{"model.family=mixtral", "parallel.pipeline=2",
                                      "model.balance_form=pooled"};
  EXPECT_NO_THROW(parse("", keys));
}

TEST(PipelineOf, ATiedHeadCanBeOnAnotherStageThanTheEmbedding) {
  EXPECT_NO_THROW(mesh_of(pipeline({"model.tied_head=true", "parallel.pipeline=4"}), 4));
}

/// One rank takes the micro-batches in their order. In another one, sums would have other bits.
TEST(PipelineOf, AFileWithMicroBatchesInAnotherOrderIsRefused) {
  const TemporaryFolder folder;
  const std::string path = (folder / "lists").string();
  const auto refusal_of = [&](const std::string& first, const std::string& second) {
    write_file(path, fmt::format("tessera pipeline schedule 1\nmicro-batches 2\nchunks 0 1\n"
                                 "rank 0: {}\nrank 1: {}\n",
                                 first, second));
    return refusal_on(2, {"parallel.pipeline=2", "train.global_batch=2",
                          fmt::format("parallel.schedule=\"{}\"", path)});
  };
  EXPECT_THAT(refusal_of("F0.1 F0.0 B0.1 B0.0", "F1.1 F1.0 B1.1 B1.0"),
              HasSubstr("found the forward of chunk 0, micro-batch 1, expected micro-batch 0"));
  EXPECT_THAT(refusal_of("F0.0 F0.1 B0.1 B0.0", "F1.0 F1.1 B1.1 B1.0"),
              HasSubstr("found the backward of chunk 0, micro-batch 1, expected micro-batch 0"));
  EXPECT_THAT(
      refusal_of("F0.0 F0.1 B0.0 B0.1", "F1.0 F1.1 I1.0 I1.1 W1.1 W1.0"),
      HasSubstr("found the weight gradients of chunk 1, micro-batch 1, expected micro-batch "
                "0 there: a chunk takes them in their order"));
}

/// All micro-batches of a program run the same segments.
TEST(PipelineOf, AFileWithHalvesRunsWholeBackwardPassesOfThatChunkInHalves) {
  const TemporaryFolder folder;
  const std::string path = (folder / "lists").string();
  write_file(path,
             "tessera pipeline schedule 1\nmicro-batches 2\nchunks 0 1\n"
             "rank 0: F0.0 B0.0 F0.1 B0.1\nrank 1: F1.0 B1.0 F1.1 I1.1 W1.1\n");
  const PipelineSchedule schedule = schedule_on(2, {"parallel.pipeline=2", "train.global_batch=2",
                                                    fmt::format("parallel.schedule=\"{}\"", path)});
  const auto kinds_of = [&](size_t rank) {
    std::vector<ActionKind> kinds;
    for (const ScheduleEntry& entry : schedule.ranks[rank]) {
      if (const auto* const action = std::get_if<ChunkAction>(&entry))
        kinds.push_back(action->kind);
    }
    return kinds;
  };
  using enum ActionKind;
  EXPECT_THAT(kinds_of(0), ElementsAre(forward, backward, forward, backward));
  EXPECT_THAT(kinds_of(1), ElementsAre(forward, input_gradients, weight_gradients, forward,
                                       input_gradients, weight_gradients));
}

TEST(PipelineOf, TheScheduleCanBeInAFile) {
  const TemporaryFolder folder;
  const std::string path = (folder / "lists").string();
  const std::string key = fmt::format("parallel.schedule=\"{}\"", path);
  const PipelineShape shape{.ranks = 2, .chunks = 2, .micro_batches = 16};
  const ActionLists lists = zero_bubble_h1(shape);
  write_file(path, schedule_text(lists));
  const PipelineSchedule schedule = schedule_on(2, {"parallel.pipeline=2", key});
  EXPECT_EQ(schedule.ranks, place_messages(lists).ranks);
  EXPECT_EQ(schedule.name, path);
  const std::string named = fmt::format("parallel.schedule = \"{}\": ", path);
  EXPECT_THAT(
      refusal_on(4, {"parallel.pipeline=4", key}),
      AllOf(HasSubstr(named), HasSubstr("found a schedule for 2 stages and 16 "
                                        "micro-batches, expected one for 4 stages and 16")));
  EXPECT_THAT(refusal_on(4, {"parallel.pipeline=2", key}),
              AllOf(HasSubstr("train.global_batch (16) / (train.micro_batch (1) * 2 data-parallel "
                              "ranks) is 8 micro-batches a step: "),
                    HasSubstr("expected one for 2 stages and 8 micro-batches")));
  EXPECT_THAT(
      refusal_on(2, {"parallel.pipeline=2", "parallel.virtual_stages=2", key}),
      AllOf(HasSubstr(named), HasSubstr("found a schedule for 2 chunks, expected 4: "
                                        "parallel.pipeline (2) * parallel.virtual_stages (2)")));
}

/// An evaluation has no micro-batches of a step.
TEST(PipelineOf, ThePlacementIsThatOfEveryNumberOfMicroBatches) {
  const TemporaryFolder folder;
  const std::string path = (folder / "lists").string();
  const auto stages_of_chunks = [](const std::vector<std::string>& keys) {
    return chunk_placement(pipeline(keys).parallel).rank_of_chunk;
  };
  EXPECT_THAT(stages_of_chunks({}), ElementsAre(0));
  EXPECT_THAT(stages_of_chunks({"parallel.pipeline=2", "parallel.virtual_stages=2"}),
              ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(stages_of_chunks({"parallel.pipeline=2", "parallel.schedule=dualpipe-v"}),
              ElementsAre(0, 1, 1, 0));
  write_file(path,
             "tessera pipeline schedule 1\nmicro-batches 1\nchunks 1 0\n"
             "rank 0: F1.0 B1.0\nrank 1: F0.0 B0.0\n");
  const std::string key = fmt::format("parallel.schedule=\"{}\"", path);
  EXPECT_THAT(stages_of_chunks({"parallel.pipeline=2", key}), ElementsAre(1, 0));
  EXPECT_THAT(
      error_of([&] {
        stages_of_chunks({"parallel.pipeline=4", key});
      }),
      AllOf(HasSubstr("parallel.schedule = "), HasSubstr("for 2 stages, expected one for 4")));
  EXPECT_THAT(error_of([&] {
                stages_of_chunks({"parallel.pipeline=2", "parallel.virtual_stages=2", key});
              }),
              HasSubstr("found a schedule for 2 chunks, expected 4"));
}

TEST(PipelineOf, RefusesAFileThatIsWrongOrMissing) {
  const TemporaryFolder folder;
  const std::string path = (folder / "lists").string();
  const std::vector<std::string> keys{"parallel.pipeline=2",
                                      fmt::format("parallel.schedule=\"{}\"", path)};
  EXPECT_THAT(refusal_on(2, keys), HasSubstr("there is no such file, and no such schedule among "
                                             "gpipe, 1f1b, interleaved, flexible, zb-h1, zb-v, "
                                             "dualpipe-v"));
  EXPECT_THAT(refusal_on(2, {"parallel.pipeline=2", "parallel.schedule=gpipes"}),
              HasSubstr("did you mean gpipe?"));
  write_file(path, "rank 0: F0.0\n");
  EXPECT_THAT(refusal_on(2, keys), HasSubstr("lists, line 1: found 'rank 0: F0.0', expected"));
  ActionLists lists = one_forward_one_backward({.ranks = 2, .chunks = 2, .micro_batches = 16});
  std::swap(lists.ranks[0].front(), lists.ranks[0].back());
  write_file(path, schedule_text(lists));
  EXPECT_THAT(refusal_on(2, keys),
              AllOf(HasSubstr("parallel.schedule = "), HasSubstr("this pipeline schedule cannot "
                                                                 "run:\n  rank 0, entry")));
}

TEST(PipelineOf, RecomputesOnTheStagesThatAreNamed) {
  const auto train_of = [](const std::string& stages) {
    return pipeline({"parallel.pipeline=2", "train.recompute=[\"norm\"]",
                     "train.recompute_stages=" + stages})
        .train;
  };
  const std::vector norm{RecomputedBlock::norm};
  EXPECT_EQ(recomputed_on(train_of("[]"), 1), norm);
  EXPECT_EQ(recomputed_on(train_of("[0]"), 0), norm);
  EXPECT_TRUE(recomputed_on(train_of("[0]"), 1).empty());
  EXPECT_THAT(error_of([&] { train_of("[2]"); }), HasSubstr("names stage 2; expected 0 to 1"));
  EXPECT_THAT(error_of([&] { train_of("[1, 1]"); }), HasSubstr("names stage 1 twice"));
}

}  // namespace
}  // namespace tessera
