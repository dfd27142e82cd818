// What the stages of a pipeline send each other in a step, as the transports count it.
#include <array>

#include <gtest/gtest.h>

#include "comm/in_process/run_mesh.h"
#include "ops/host_target.h"
#include "pipeline/stage_runner.h"
#include "support/random_batches.h"
#include "support/small_family.h"
#include "verify/layout_trials.h"
#include "verify/pipeline_trials.h"

namespace tessera {
namespace {

/// The bytes of messages that a rank has received.
struct ReceivedMessages {
  int64_t activations = 0;
  int64_t gradients = 0;
  bool operator==(const ReceivedMessages&) const = default;
};
void PrintTo(const ReceivedMessages& received, std::ostream* out) {
  *out << fmt::format("{} of activations, {} of gradients", received.activations,
                      received.gradients);
}

/// Runs a step on every rank of a trial, and returns what each has received.
std::vector<ReceivedMessages> received_in_a_step(const LayoutTrial& trial) {
  const auto steps =
      testing::random_batches(trial.size, trial.model.vocabulary_size, 1, trial.micro_batches, 3);
  std::vector<ReceivedMessages> by_rank(static_cast<size_t>(trial.mesh.ranks()));
  World world(trial.mesh.ranks());
  run_mesh(world, trial.mesh, [&](RankGroups& groups) {
    const StepPrograms programs = layout_programs(trial, groups.rank());
    Runtime runtime(host_target(1));
    runtime.join(groups);
    Executor executor(programs.list(), programs.actions(), runtime);
    const ParameterStore store = store_of(programs, executor);
    TrainingStep step(programs, executor, store);
    store.initialize(trial.seed, 1);
    step.forward_backward(steps[0]);
    step.update(trial.optimizer, {.step = 1, .steps = 1});
    EXPECT_TRUE(step.results().wait().updated);
    const std::array axes{trial.mesh.pipeline()};
    const auto received = [&](Lane lane) {
      return groups.over(axes, word(lane)).traffic(Collective::message).received_bytes;
    };
    by_rank[static_cast<size_t>(groups.rank())] = {received(Lane::messages_forward),
                                                   received(Lane::messages_backward)};
  });
  return by_rank;
}

/// Expects that each boundary between chunks of two stages has so many channels of each token in
/// each direction. A stage's ranks divide them.
void expect_boundaries(const LayoutTrial& trial, int64_t channels) {
  SCOPED_TRACE(fmt::format("{}, {}", trial.mesh.text(), trial.pipeline.schedule.name));
  const int stages = trial.mesh.size(trial.mesh.pipeline());
  const int64_t stage_ranks = trial.mesh.ranks() / stages;
  const int64_t bytes = trial.micro_batches * trial.size.sequences * trial.size.context * channels *
                        dtype_size(trial.compute) / stage_ranks;
  const std::vector<ReceivedMessages> found = received_in_a_step(trial);
  const ChunkPlacement& placement = trial.pipeline.schedule.placement;
  for (int rank = 0; rank < trial.mesh.ranks(); ++rank) {
    ReceivedMessages expected;
    for (const int chunk : placement.chunks_of(trial.mesh.stage(rank))) {
      const auto beside = [&](int other) {
        return placement.has(other) && placement.rank(other) != placement.rank(chunk);
      };
      if (beside(chunk - 1)) expected.activations += bytes;
      if (beside(chunk + 1)) expected.gradients += bytes;
    }
    EXPECT_EQ(found[static_cast<size_t>(rank)], expected) << "rank " << rank;
  }
}

TEST(PipelineBytes, AreOneHiddenStateEachWay) {
  ModelConfig model = laid_out_dense();
  model.layers = 4;
  const auto expect_one_state = [&](const PipelineCut& cut, const MeshSizes& sizes, DType compute) {
    LayoutTrial trial = trial_of(model, cut, sizes);
    trial.compute = compute;
    expect_boundaries(trial, model.hidden_size);
  };
  const PipelineCut in_turn{.stages = 4, .micro_batches = 3};
  const PipelineCut interleaved{
      .kind = ScheduleKind::interleaved, .stages = 2, .chunks_per_stage = 2, .micro_batches = 4};
  const PipelineCut down_and_up{
      .kind = ScheduleKind::zero_bubble_v, .stages = 2, .chunks_per_stage = 2, .micro_batches = 4};
  for (const PipelineCut& cut : {in_turn, interleaved, down_and_up}) {
    expect_one_state(cut, {}, DType::bf16);
    expect_one_state(cut, {.tensor = 2}, DType::bf16);
  }
  expect_one_state(in_turn, {.context = 2}, DType::bf16);
  expect_one_state(in_turn, {.data = {2}}, DType::f32);
}

/// Residual scaling keeps the last output beside the stream, and routers hand on their state.
TEST(PipelineBytes, OfZaya1AreStreamOutputAndRouterState) {
  ModelConfig model = testing::small_family(Family::zaya);
  model.layers = 4;
  model.tied_head = false;
  expect_boundaries(trial_of(model, {.stages = 4, .micro_batches = 3}),
                    2 * model.hidden_size + model.router_size);
}

}  // namespace
}  // namespace tessera
