#include "plan/predicted_step.h"

#include <list>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/mesh_of.h"
#include "config/pipeline_of.h"
#include "ops/host_target.h"
#include "plan/chunk_times.h"
#include "plan/small_run.h"

namespace tessera {
namespace {

RunConfig staged_run(std::vector<std::string> keys) {
  keys.emplace_back("parallel.pipeline=4");
  return testing::small_run(8, keys);
}

std::string key(const std::string& name, const std::string& value) {
  return "parallel." + name + "=" + value;
}

/// The programs of one rank of each stage.
std::list<StepPrograms> programs_of(const RunConfig& config) {
  const Mesh mesh = mesh_of(config, 4);
  std::list<StepPrograms> result;
  for (int rank = 0; rank < 4; ++rank) result.push_back(step_programs(config, {mesh, rank}));
  return result;
}

std::vector<const StepPrograms*> pointers_to(const std::list<StepPrograms>& programs) {
  std::vector<const StepPrograms*> result;
  for (const StepPrograms& stage : programs) result.push_back(&stage);
  return result;
}

/// Gives each pass of each chunk its time, shared out over its nodes, and each message `latency`.
class SetTimes {
 public:
  SetTimes(const std::list<StepPrograms>& programs, const ScheduleTimes& times)
      : latency_(times.latency) {
    const ChunkPlacement& placement = programs.front().sets.front().placement;
    int stage = 0;
    for (const StepPrograms& of_stage : programs) {
      const std::vector<int> chunks = placement.chunks_of(stage++);
      for (size_t i = 0; i < chunks.size(); ++i) {
        const Program& program = of_stage.chunks()[i].program;
        times_[&program] = node_times(program, times.chunks[static_cast<size_t>(chunks[i])]);
      }
    }
  }

  StepSeconds seconds() const {
    return {.node =
                [this](const Program& program, const Node& node) {
                  const auto found = times_.find(&program);
                  if (found == times_.end()) return 0.0;
                  return found->second[static_cast<size_t>(&node - program.nodes().data())];
                },
            .message = [this](const Program&, std::span<const Value>, int) { return latency_; }};
  }

 private:
  std::map<const Program*, std::vector<double>> times_;
  double latency_;
};

/// Returns times that differ by `slope` from chunk to chunk. The first one has no input gradients.
ScheduleTimes times_of(int chunks, double latency, double slope) {
  ScheduleTimes times{.chunks = {}, .latency = latency};
  for (int chunk = 0; chunk < chunks; ++chunk) {
    times.chunks.push_back({.forward = 1 + slope * chunk,
                            .input_gradients = 1.1 - slope / 2 * chunk,
                            .weight_gradients = 0.9 + slope / 10 * chunk});
  }
  times.chunks.front().input_gradients = 0;
  return times;
}

PredictedStep play_all(const RunConfig& config, const std::list<StepPrograms>& programs,
                       const StepSeconds& seconds) {
  const PipelineSchedule schedule = pipeline_schedule(config, programs.front().start.mesh());
  std::vector<ListedStep> stages;
  for (const StepPrograms& stage : programs)
    stages.push_back({&stage, stage.step_list(0, schedule)});
  return predict_step(stages, host_target(1), seconds);
}

class PredictedPipeline : public ::testing::TestWithParam<std::string> {};

/// The schedule's clock knows passes and messages, and nothing of programs and lanes.
TEST_P(PredictedPipeline, TakesTheTimeOfTheSchedulesClock) {
  const RunConfig config =
      staged_run({key("schedule", "\"" + GetParam() + "\""), "train.global_batch=8"});
  const std::list<StepPrograms> programs = programs_of(config);
  const PipelineSchedule schedule = pipeline_schedule(config, programs.front().start.mesh());
  for (const double latency : {0.0, 0.3}) {
    const ScheduleTimes times = times_of(schedule.placement.chunks(), latency, 0.1);
    const SetTimes set(programs, times);
    const PredictedStep step = play_all(config, programs, set.seconds());
    const ScheduleFigures expected = measure(schedule, times);
    EXPECT_NEAR(step.seconds, expected.makespan, 1e-9) << latency;
    ASSERT_EQ(step.stages.size(), 4U);
    for (size_t stage = 0; stage < 4; ++stage) {
      const PredictedStage& predicted = step.stages[stage];
      EXPECT_NEAR(predicted.computing, expected.ranks[stage].busy, 1e-9);
      double waits = 0;
      for (const auto& [kind, seconds] : predicted.messages) {
        waits += seconds.exposed + seconds.waiting;
      }
      EXPECT_LE(waits, expected.makespan - predicted.computing + 1e-9);
    }
  }
}

/// The waits of a full pipeline need not repeat with the same period, so they are near alone.
TEST_P(PredictedPipeline, ExtendsToManyMicroBatches) {
  const RunConfig config =
      staged_run({key("schedule", "\"" + GetParam() + "\""), "train.global_batch=120"});
  const std::list<StepPrograms> programs = programs_of(config);
  const int chunks = programs.front().sets.front().placement.chunks();
  for (const double slope : {0.0, 0.1}) {
    const SetTimes set(programs, times_of(chunks, 0.2, slope));
    const PredictedStep all = play_all(config, programs, set.seconds());
    const PredictedStep extended =
        predict_step(config, pointers_to(programs), host_target(1), set.seconds());
    const double bound = 0.01 * all.seconds;
    EXPECT_NEAR(extended.seconds, all.seconds, bound / 2);
    for (size_t stage = 0; stage < 4; ++stage) {
      const PredictedStage& of_all = all.stages[stage];
      const PredictedStage& of_extended = extended.stages[stage];
      EXPECT_NEAR(of_extended.computing, of_all.computing, 1e-6);
      EXPECT_EQ(of_extended.calls.size(), of_all.calls.size());
      for (const auto& [kind, seconds] : of_all.messages) {
        const PredictedSeconds& same = of_extended.messages.at(kind);
        EXPECT_EQ(same.calls, seconds.calls);
        EXPECT_NEAR(same.exposed, seconds.exposed, bound);
        EXPECT_NEAR(same.waiting, seconds.waiting, bound);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, PredictedPipeline,
                         ::testing::Values("gpipe", "1f1b", "interleaved", "flexible", "zb-h1",
                                           "zb-v", "dualpipe-v"),
                         [](const auto& info) {
                           std::string name;
                           for (const char letter : info.param) {
                             if (letter != '-') name += letter;
                           }
                           return name;
                         });

/// All stages make two sums in the update: of losses, at once, and of squares, which come first on
/// the last stage alone. The others wait for it there. By hand, with squares that take longer than
/// a sum.
TEST(PredictedStages, WaitForTheLastStageAtASumOfAll) {
  const RunConfig config = staged_run({"train.global_batch=4"});
  const std::list<StepPrograms> programs = programs_of(config);
  const auto seconds = [&](const Program& program, const Node& node) {
    const bool is_sum = node.operation->name() == "sum_over_stages";
    if (is_sum) return 2.0;
    return program.rank() == 3 && node.operation->name() == "sum_of_squares" ? 5.0 : 0.0;
  };
  const PredictedStep step =
      play_all(config, programs,
               {.node = seconds,
                .message = [](const Program&, std::span<const Value>, int) { return 0.0; }});
  const double squares = step.stages[3].computing;
  EXPECT_GT(squares, 2);
  for (size_t stage = 0; stage < 4; ++stage) {
    PredictedSeconds sums;
    for (const PredictedCall& call : step.stages[stage].calls) {
      if (call.node->operation->name() != "sum_over_stages") continue;
      sums.calls += call.times.calls;
      sums.seconds += call.times.seconds;
      sums.exposed += call.times.exposed;
      sums.waiting += call.times.waiting;
    }
    const bool is_last = stage == 3;
    EXPECT_EQ(sums.calls, 2);
    EXPECT_EQ(sums.seconds, 4) << stage;
    EXPECT_EQ(sums.exposed, is_last ? 2 : 4) << stage;
    EXPECT_EQ(sums.waiting, is_last ? 0 : squares - 2) << stage;
  }
  EXPECT_EQ(step.seconds, squares + 2);
}

}  // namespace
}  // namespace tessera
