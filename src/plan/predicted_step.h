#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "pipeline/stage_list.h"
#include "plan/programs.h"
#include "program/target.h"

namespace tessera {

/// The seconds of calls of other ranks in a step that was not run.
struct PredictedSeconds {
  int calls = 0;
  double seconds = 0;  ///< in which they transfer
  double exposed = 0;  ///< of it, those for which the compute lane waits
  double waiting = 0;  ///< for which the compute lane waits for other stages to come to the calls
  /// The seconds that the compute lane computes meanwhile, by the operation and its block. Not
  /// known of messages.
  std::map<std::string, double> beside;
};

/// A node of another lane than `compute`.
struct PredictedCall {
  const Program* program = nullptr;
  const Node* node = nullptr;
  PredictedSeconds times;
};

/// A step of a stage of a pipeline.
struct PredictedStage {
  double computing = 0;  ///< seconds of the nodes of its compute lane
  std::vector<PredictedCall> calls;
  std::map<BoundaryKind, PredictedSeconds> messages;
};

/// A step as the lanes of its ranks would run it.
struct PredictedStep {
  double seconds = 0;
  std::vector<PredictedStage> stages;
  int calls_alone = 0;  ///< the calls that began without the other stages: see predict_step()
};

/// How long what a step does takes, in seconds.
struct StepSeconds {
  std::function<double(const Program& program, const Node& node)> node;
  /// Of the message of these values of a rank's program to or from the rank `peer`. It may be left
  /// out without stages.
  std::function<double(const Program& program, std::span<const Value> values, int peer)> message;
};

/// The list of a rank's step, and the programs that it runs.
struct ListedStep {
  const StepPrograms* programs = nullptr;
  StageList list;
};

/// Predicts a step after one like it. `stages` has one rank of each stage, in their order. Each
/// step of a lane begins and is awaited as the executor does it. All ranks of a stage are taken to
/// come to each call at the same time, and messages of a channel to move one after the other. If
/// each stage waits for another one at a call or a message, a call begins without the other stages.
PredictedStep predict_step(std::span<const ListedStep> stages, const Target& target,
                           const StepSeconds& seconds);

/// Predicts a step of one phase, with the programs of one rank of each stage. Of many micro-batches
/// only so many are played that the pipeline is full for a while. Further ones take what the last
/// ones have added. The lists of a schedule in a file are played as they are.
PredictedStep predict_step(const RunConfig& phase, std::span<const StepPrograms* const> stages,
                           const Target& target, const StepSeconds& seconds);

}  // namespace tessera
