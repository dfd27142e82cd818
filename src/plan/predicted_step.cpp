#include "plan/predicted_step.h"

#include <algorithm>
#include <cmath>
#include <list>

#include "base/error.h"
#include "config/mesh_of.h"
#include "config/pipeline_of.h"
#include "plan/stage_clocks.h"

namespace tessera {
namespace {

/// Runs the stages by turns, each as far as it gets. If each waits for another one, a call that one
/// waits for begins without the others. That may be if the calls of a lane wait for those of
/// another stage, which come after a message that this stage sends later. Returns how many calls
/// began so in the predicted step.
int run_by_turns(std::list<StageClocks>& stages) {
  int calls_alone = 0;
  const auto is_done = [](const StageClocks& stage) { return stage.is_done(); };
  while (!std::ranges::all_of(stages, is_done)) {
    bool got_further = false;
    for (StageClocks& stage : stages) {
      if (!stage.is_done() && stage.advance()) got_further = true;
    }
    if (got_further) continue;
    const auto waits = [](const StageClocks& stage) { return stage.waits_for_call(); };
    const auto alone = std::ranges::find_if(stages, waits);
    TESSERA_CHECK(alone != stages.end(), "the stages of a step wait for each other's messages");
    alone->begin_alone();
    if (alone->pass() == StageClocks::kPredicted) ++calls_alone;
  }
  return calls_alone;
}

/// Returns the lists of the stages for another number of micro-batches.
std::vector<ListedStep> lists_of(RunConfig phase, std::span<const StepPrograms* const> stages,
                                 int micro_batches) {
  const Mesh& mesh = stages.front()->start.mesh();
  phase.train.global_batch = micro_batches * phase.train.micro_batch * data_ranks(mesh);
  const PipelineSchedule schedule = pipeline_schedule(phase, mesh);
  std::vector<ListedStep> result;
  for (const StepPrograms* const programs : stages) {
    result.push_back({programs, programs->step_list(0, schedule)});
  }
  return result;
}

/// Adds to a step of more micro-batches `factor` times what it has more than a step of fewer.
void extend(double& more, double fewer, double factor) { more += factor * (more - fewer); }
void extend(int& more, int fewer, double factor) {
  more += static_cast<int>(std::lround(factor * (more - fewer)));
}

void extend(PredictedSeconds& more, const PredictedSeconds& fewer, double factor) {
  extend(more.calls, fewer.calls, factor);
  extend(more.seconds, fewer.seconds, factor);
  extend(more.exposed, fewer.exposed, factor);
  extend(more.waiting, fewer.waiting, factor);
  for (auto& [name, seconds] : more.beside) {
    const auto found = fewer.beside.find(name);
    extend(seconds, found == fewer.beside.end() ? 0 : found->second, factor);
  }
}

void extend(PredictedStep& more, const PredictedStep& fewer, double factor) {
  extend(more.seconds, fewer.seconds, factor);
  extend(more.calls_alone, fewer.calls_alone, factor);
  for (size_t i = 0; i < more.stages.size(); ++i) {
    PredictedStage& stage = more.stages[i];
    const PredictedStage& before = fewer.stages[i];
    extend(stage.computing, before.computing, factor);
    for (PredictedCall& call : stage.calls) {
      const auto same = std::ranges::find(before.calls, call.node, &PredictedCall::node);
      TESSERA_CHECK(same != before.calls.end(), "a call is of the larger step alone");
      extend(call.times, same->times, factor);
    }
    for (auto& [kind, times] : stage.messages) extend(times, before.messages.at(kind), factor);
  }
}

}  // namespace

PredictedStep predict_step(std::span<const ListedStep> stages, const Target& target,
                           const StepSeconds& seconds) {
  StageMeetings meetings;
  std::list<StageClocks> clocks;  // cannot be moved
  for (const ListedStep& stage : stages) clocks.emplace_back(stage, target, seconds, meetings);
  const int calls_alone = run_by_turns(clocks);
  const auto end_of = [&](int pass) {
    double end = 0;
    for (const StageClocks& stage : clocks) end = std::max(end, stage.end_of(pass));
    return end;
  };
  PredictedStep result{
      .seconds = end_of(StageClocks::kPredicted) - end_of(StageClocks::kPredicted - 1),
      .stages = {},
      .calls_alone = calls_alone};
  for (const StageClocks& stage : clocks) result.stages.push_back(stage.predicted());
  return result;
}

PredictedStep predict_step(const RunConfig& phase, std::span<const StepPrograms* const> stages,
                           const Target& target, const StepSeconds& seconds) {
  const PipelineShape shape = pipeline_shape(phase, stages.front()->start.mesh());
  const bool has_turns = !stages.front()->sets.front().turns.empty();  // of two frames
  const int round =
      std::max({shape.ranks, shape.consecutive_micro_batches.value_or(1), has_turns ? 2 : 1});
  const auto predict = [&](int micro_batches) {
    return predict_step(lists_of(phase, stages, micro_batches), target, seconds);
  };
  // A pipeline is full after a round of micro-batches. If stages take different times, some more go
  // by until the slowest one sets the pace. Rounds may differ a little, so several are compared.
  constexpr int kFirstRounds = 6, kComparedRounds = 6;
  const int rounds = shape.micro_batches / round - kFirstRounds - kComparedRounds;
  if (rounds < 2 || !schedule_kind(phase.parallel)) return predict(shape.micro_batches);
  const int played = shape.micro_batches - rounds * round;
  PredictedStep result = predict(played);
  extend(result, predict(played - kComparedRounds * round),
         static_cast<double>(rounds) / kComparedRounds);
  return result;
}

}  // namespace tessera
