#include "model/chunk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/chunk_pipeline.h"
#include "support/small_family.h"

namespace tessera {
namespace {

using testing::kMicroBatches;
using testing::kSize;
using testing::Pipeline;
using testing::two_chunks;
using testing::whole_schedule;

/// Each micro-batch through both chunks and back before the next.
std::vector<Action> one_after_the_other() {
  std::vector<Action> actions;
  for (int m = 0; m < kMicroBatches; ++m) {
    actions.push_back({Segment::forward, 0, m});
    actions.push_back({Segment::forward, 1, m});
    actions.push_back({Segment::backward, 1, m});
    actions.push_back({Segment::backward, 0, m});
  }
  return actions;
}

/// Three micro-batches in flight in the first chunk and one in the second.
std::vector<Action> several_in_flight() {
  std::vector<Action> actions;
  for (int m = 0; m < kMicroBatches + 2; ++m) {
    if (m < kMicroBatches) actions.push_back({Segment::forward, 0, m});
    if (m < 2) continue;
    actions.push_back({Segment::forward, 1, m - 2});
    actions.push_back({Segment::backward, 1, m - 2});
    actions.push_back({Segment::backward, 0, m - 2});
  }
  return actions;
}

/// As zero-bubble schedules do: weights' gradients wait for the next micro-batch's input gradients.
std::vector<Action> split_backward() {
  std::vector<Action> actions;
  for (int m = 0; m < kMicroBatches; ++m) {
    actions.push_back({Segment::forward, 0, m});
    actions.push_back({Segment::forward, 1, m});
    actions.push_back({Segment::input_gradients, 1, m});
    actions.push_back({Segment::input_gradients, 0, m});
    if (m == 0) continue;
    actions.push_back({Segment::weight_gradients, 1, m - 1});
    actions.push_back({Segment::weight_gradients, 0, m - 1});
  }
  actions.push_back({Segment::weight_gradients, 0, kMicroBatches - 1});
  actions.push_back({Segment::weight_gradients, 1, kMicroBatches - 1});
  return actions;
}

struct Case {
  ModelConfig config;
  Recompute recompute;
};

std::vector<Case> cases() {
  ModelConfig mixture = testing::small_mixture();
  mixture.layers = 3;
  ModelConfig dense = testing::small_dense();
  dense.layers = 3;
  ModelConfig shared = mixture;
  shared.shared_experts = 1;
  shared.dense_layers = 1;
  shared.feed_forward_size = 10;
  // The state of routers passes between chunks, and the stream is wide. Biases would be kept in
  // copies that another program makes.
  ModelConfig zaya = testing::small_family(Family::zaya);
  zaya.layers = 3;
  zaya.initialization_deviation = 0.3;
  zaya.balance_biases = BiasBalancing::none;
  zaya.tied_head = false;
  return {{mixture, {}},
          {zaya, {}},
          {zaya, {.layer = true}},
          {mixture, {.layer = true}},
          {dense, {}},
          {dense, {.norm = true, .attention = true, .experts = true}},
          {shared, {.norm = true}}};
}

TEST(Chunk, TwoChunksGiveTheBitsOfTheWholeModelInEverySchedule) {
  for (const auto& [config, recompute] : cases()) {
    for (const DType dtype : {DType::bf16, DType::f64}) {
      Pipeline whole(config, dtype, {whole_model(config)}, recompute, whole_schedule());
      whole.run();
      const auto gradients = whole.gradients();
      ASSERT_FALSE(gradients.empty());
      for (const auto& schedule : {one_after_the_other(), several_in_flight(), split_backward()}) {
        Pipeline parts(config, dtype, two_chunks(config), recompute, schedule);
        parts.run();
        EXPECT_EQ(parts.gradients(), gradients) << dtype_name(dtype);
        const auto sums = parts.sums();
        EXPECT_EQ(sums.at("sum:cross_entropy"), whole.sums().at("sum:cross_entropy"));
        for (const auto& [name, values] : whole.sums()) {
          if (name.starts_with("sum:expert_tokens")) {
            EXPECT_EQ(sums.at(name), values) << name;
          }
        }
      }
    }
  }
}

TEST(Chunk, ASplitBackwardPassOfTheWholeModelGivesTheSameBits) {
  const ModelConfig config = testing::small_mixture();
  Pipeline whole(config, DType::bf16, {whole_model(config)}, {}, whole_schedule());
  whole.run();
  std::vector<Action> actions;
  for (int m = 0; m < kMicroBatches; ++m) {
    for (const Segment segment :
         {Segment::forward, Segment::input_gradients, Segment::weight_gradients}) {
      actions.push_back({segment, 0, m});
    }
  }
  Pipeline split(config, DType::bf16, {whole_model(config)}, {}, actions);
  split.run();
  EXPECT_EQ(split.gradients(), whole.gradients());
  EXPECT_EQ(split.sums(), whole.sums());
}

TEST(Chunk, ATiedHeadInAnotherChunkAddsIntoTheEmbeddingsGradient) {
  ModelConfig config = testing::small_dense();
  config.tied_head = true;
  Pipeline whole(config, DType::f64, {whole_model(config)}, {}, whole_schedule());
  whole.run();
  Pipeline parts(config, DType::f64, two_chunks(config), {}, one_after_the_other());
  parts.run();
  EXPECT_EQ(parts.gradients(), whole.gradients());
}

TEST(Chunk, AFrameInFlightTakesWhatItSaves) {
  const ModelConfig config = testing::small_mixture();
  const Pipeline one(config, DType::f32, two_chunks(config), {}, one_after_the_other());
  const Pipeline several(config, DType::f32, two_chunks(config), {}, several_in_flight());
  EXPECT_EQ(several.plan().programs[0].values.size(), 3U);
  EXPECT_EQ(several.plan().programs[1].values.size(), 1U);
  const int64_t saved = several.plan().programs[0].saved_bytes;
  EXPECT_EQ(several.plan().live_bytes, one.plan().live_bytes + 2 * saved);
  EXPECT_LE(static_cast<double>(several.plan().arena_bytes),
            1.01 * static_cast<double>(several.plan().live_bytes));
}

}  // namespace
}  // namespace tessera
