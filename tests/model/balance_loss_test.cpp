// A balance loss that pools the layers of several chunks.
#include "model/balance_loss.h"

#include <gtest/gtest.h>

#include "base/words.h"
#include "model/chunk_pipeline.h"
#include "model/model.h"

namespace tessera {
namespace {

using testing::kMicroBatches;
using testing::kSize;
using testing::Pipeline;
using testing::two_chunks;
using testing::whole_schedule;

/// A model of four layers, of which all or all but the first are mixtures.
ModelConfig pooled_model(BalanceTokens tokens, int64_t dense_layers) {
  ModelConfig config = testing::small_mixture();
  config.layers = 4;
  config.dense_layers = dense_layers;
  config.feed_forward_size = dense_layers > 0 ? 10 : 0;
  config.balance_form = BalanceForm::pooled;
  config.balance_tokens = tokens;
  return config;
}

constexpr BalanceTokens kAllTokens[] = {BalanceTokens::rank, BalanceTokens::micro_batch,
                                        BalanceTokens::global_batch};

/// Chunks that end before these layers.
std::vector<ChunkRange> chunks_that_end(const std::vector<int64_t>& ends) {
  std::vector<ChunkRange> ranges;
  int64_t first = 0;
  for (const int64_t end : ends) {
    ranges.push_back({.layers = {first, end}, .embedding = ranges.empty(), .head = false});
    first = end;
  }
  ranges.back().head = true;
  return ranges;
}

/// Each micro-batch through all chunks and back, with whole backward passes or in halves.
std::vector<Action> through_all(int chunks, bool halves) {
  std::vector<Action> actions;
  for (int m = 0; m < kMicroBatches; ++m) {
    for (int c = 0; c < chunks; ++c) actions.push_back({Segment::forward, c, m});
    for (int c = chunks - 1; c >= 0; --c) {
      actions.push_back({halves ? Segment::input_gradients : Segment::backward, c, m});
    }
    for (int c = 0; halves && c < chunks; ++c) {
      actions.push_back({Segment::weight_gradients, c, m});
    }
  }
  return actions;
}

TEST(PooledBalance, HasTheBitsOfTheWholeModelHoweverItIsCut) {
  // The embedding alone, cuts around the first mixture layer, single layers, the head alone.
  const std::vector<std::vector<int64_t>> all_cuts{{2, 4},       {1, 4},    {0, 3, 4},
                                                   {1, 2, 3, 4}, {2, 4, 4}, {0, 1, 2, 4, 4}};
  for (const BalanceTokens tokens : kAllTokens) {
    for (const int64_t dense_layers : {0, 1}) {
      const ModelConfig config = pooled_model(tokens, dense_layers);
      for (const DType dtype : {DType::bf16, DType::f64}) {
        Pipeline whole(config, dtype, {whole_model(config)}, {}, whole_schedule());
        whole.run();
        for (const std::vector<int64_t>& ends : all_cuts) {
          const bool halves = ends.size() > 2;
          const std::vector<Action> actions = through_all(static_cast<int>(ends.size()), halves);
          Pipeline parts(config, dtype, chunks_that_end(ends), {}, actions);
          parts.run();
          EXPECT_EQ(parts.gradients(), whole.gradients())
              << word(tokens) << ", " << dense_layers << ", " << ends.size() << " chunks";
          EXPECT_EQ(parts.sums().at("sum:balance_loss"), whole.sums().at("sum:balance_loss"));
        }
      }
    }
  }
}

TEST(PooledBalance, IsInTheLastChunkWithMixtureLayers) {
  const ModelConfig config = pooled_model(BalanceTokens::micro_batch, 1);
  std::vector<bool> have_loss, pass_on;
  for (const ChunkRange& range : chunks_that_end({1, 2, 4, 4})) {
    const Chunk chunk = write_chunk(config, DType::f32, kSize, {}, range);
    EXPECT_EQ(chunk.outline.sums.balance.has_value(), bool(chunk.balance_loss));
    EXPECT_EQ(bool(chunk.boundary_out.counts), bool(chunk.boundary_out.probability_sums));
    have_loss.push_back(bool(chunk.balance_loss));
    pass_on.push_back(bool(chunk.boundary_out.counts));
    for (const Boundary& gradients : {chunk.boundary_in_gradients, chunk.boundary_out_gradients}) {
      EXPECT_FALSE(gradients.counts);
    }
  }
  EXPECT_EQ(have_loss, (std::vector<bool>{false, false, true, false}));
  EXPECT_EQ(pass_on, (std::vector<bool>{false, true, false, false}));
}

TEST(PooledBalance, NoOtherLossPassesOnSums) {
  ModelConfig without_loss = pooled_model(BalanceTokens::micro_batch, 0);
  without_loss.balance_coefficient = 0;
  ModelConfig per_layer = pooled_model(BalanceTokens::micro_batch, 0);
  per_layer.balance_form = BalanceForm::per_layer;
  for (const ModelConfig& config : {without_loss, per_layer}) {
    for (const ChunkRange& range : two_chunks(config)) {
      const Chunk chunk = write_chunk(config, DType::f32, kSize, {}, range);
      EXPECT_FALSE(chunk.boundary_in.counts || chunk.boundary_out.counts);
      EXPECT_FALSE(chunk.boundary_in.probability_sums || chunk.boundary_out.probability_sums);
    }
  }
}

TEST(PooledBalance, AnEvaluationPassesOnNoSums) {
  const ModelConfig config = pooled_model(BalanceTokens::micro_batch, 0);
  for (const ChunkRange& range : chunks_that_end({1, 2, 4})) {
    const EvaluationProgram evaluation = write_evaluation(config, DType::f32, kSize, range);
    for (const Boundary& boundary : {evaluation.boundary_in, evaluation.boundary_out}) {
      EXPECT_FALSE(boundary.probability_sums || boundary.counts);
    }
  }
}

/// A chunk's inputs are of the types of the outputs that the chunk before has, and their gradients
/// the other way round.
TEST(PooledBalance, NeighboursDeclareTheSameBoundary) {
  const auto specs_of = [](const Chunk& chunk, const Boundary& boundary) {
    std::vector<Spec> specs;
    for (const Value value : boundary.values()) specs.push_back(chunk.program.spec(value));
    return specs;
  };
  const Mesh mesh({.tensor = 2, .context = 2, .data = {2}});
  const ProgramSize size{.sequences = 4, .context = 16};
  for (const Mesh& ranks : {Mesh(), Mesh({.data = {2}}), mesh}) {
    for (const BalanceTokens tokens : kAllTokens) {
      ModelConfig config = pooled_model(tokens, 0);
      const auto chunk = [&](const ChunkRange& range) {
        return write_chunk(config, DType::bf16, size, {}, range, {ranks, ranks.ranks() - 1});
      };
      const std::vector<ChunkRange> ranges = chunks_that_end({1, 2, 4});
      for (size_t i = 0; i + 1 < ranges.size(); ++i) {
        const Chunk from = chunk(ranges[i]), to = chunk(ranges[i + 1]);
        EXPECT_EQ(specs_of(from, from.boundary_out), specs_of(to, to.boundary_in));
        EXPECT_EQ(specs_of(from, from.boundary_out_gradients),
                  specs_of(to, to.boundary_in_gradients));
      }
    }
  }
}

}  // namespace
}  // namespace tessera
