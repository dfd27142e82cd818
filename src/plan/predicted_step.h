#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "plan/programs.h"
#include "program/target.h"

namespace tessera {

/// A node of another lane than `compute` in a step that was not run.
struct PredictedCall {
  const Program* program = nullptr;
  const Node* node = nullptr;
  double seconds = 0;
  double exposed = 0;  ///< the seconds that the compute lane waits for it
  /// The seconds that the compute lane computes meanwhile, by the operation and its block.
  std::map<std::string, double> beside;
};

/// The seconds of a step on one rank, as its lanes would run it.
struct PredictedStep {
  double seconds = 0;
  std::vector<PredictedCall> calls;  ///< in the order in which they begin
};

/// Returns the seconds of nodes, as OverlapOptions::seconds does.
using SecondsOfNode = std::function<double(const Program& program, const Node& node)>;

/// Predicts a step of so many micro-batches, after one like it: each step of a lane begins and is
/// awaited as the executor does it. All ranks are taken to come to each call at the same time, and
/// messages between stages to take none.
PredictedStep predict_step(const StepPrograms& programs, int micro_batches, const Target& target,
                           const SecondsOfNode& seconds);

}  // namespace tessera
