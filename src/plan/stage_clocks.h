#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/joins.h"
#include "engine/memory_plan.h"
#include "engine/steps_at_work.h"
#include "plan/predicted_step.h"
#include "plan/stage_meetings.h"

namespace tessera {

/// The clocks of the lanes of one stage's rank, which run its list three times. The second time is
/// the predicted one: what is at work when it ends goes on in the third.
class StageClocks {
 public:
  /// All arguments must outlive this.
  StageClocks(const ListedStep& step, const Target& target, const StepSeconds& seconds,
              StageMeetings& meetings);

  /// Runs until another stage has to come to a message or a call, or to the end. Returns whether it
  /// got further.
  bool advance();
  bool is_done() const { return pass() == kPasses; }
  /// Returns the number of the run of the list that it is in, from 0.
  int pass() const { return pass_; }
  /// Returns whether it waits for other stages to come to a call.
  bool waits_for_call() const { return has_arrived_; }
  /// Lets that call begin without them.
  void begin_alone() { begins_alone_ = true; }

  /// Returns when a run of the list ended.
  double end_of(int pass) const { return ends_[static_cast<size_t>(pass)]; }
  /// Returns what happened in the second run, when all is done.
  PredictedStage predicted() const;

  static constexpr int kPasses = 3;
  static constexpr int kPredicted = 1;

 private:
  /// What is known of a node before it runs.
  struct NodeFacts {
    Lane lane = Lane::compute;
    double seconds = 0;
    std::optional<int> calls;  ///< of StageMeetings
  };
  /// A node's place in the lists of programs.
  struct Place {
    int program = 0;
    int node = 0;
  };
  /// A run of a node of another lane than `compute`.
  struct Call {
    Place place;
    int pass = 0;
    double arrived = 0;  ///< when the rank comes to it
    double begin = 0;    ///< when the last stage does
    double end = 0;
    double exposed = 0;
    double waiting = 0;
  };
  /// A run of a node of the compute lane.
  struct Computed {
    Place place;
    double begin = 0;
    double end = 0;
  };
  /// A step of a segment in a frame of a program.
  struct FrameStep {
    int program = 0;
    int frame = 0;
    int segment = 0;
    int step = 0;
  };
  using Entry = std::variant<Action, StageMessage>;

  double& time(Lane lane) { return times_[static_cast<size_t>(lane)]; }
  double& compute() { return time(Lane::compute); }
  const NodeFacts& facts(Place place) const {
    return facts_[static_cast<size_t>(place.program)][static_cast<size_t>(place.node)];
  }
  /// Returns when the step's call is done, or 0 if it never began.
  double& done(const FrameStep& step);
  Place place_of(const FrameStep& step) const;

  // The functions below return false if another stage has to come first.
  bool run(const Entry& entry);
  bool run(const Action& action);
  bool run(const StageMessage& message);
  bool run(const FrameStep& step, const LaneSteps& awaited);
  bool run_call(const FrameStep& step, double begin);
  /// Returns when a node's call begins to which this stage comes at `arrival`.
  std::optional<double> meet(const NodeFacts& node, double arrival);

  /// Lets the compute lane wait until steps are done.
  void await(std::span<const FrameStep> steps);
  void await_at_work(const std::vector<StepAtWork>& steps);
  FrameStep frame_step(StepAtWork which) const;
  std::map<std::string, double> computed_beside(const Call& call) const;

  const ListedStep& step_;
  const StepSeconds& seconds_;
  StageMeetings& meetings_;
  int stage_;
  std::vector<const Program*> programs_;
  MemoryPlan plan_;  // without memory
  StepsAtWork at_work_;
  std::vector<std::vector<NodeFacts>> facts_;  // by program and node
  std::vector<Entry> entries_;

  // Where it is: the run of the list, the entry, and in an action the step.
  int pass_ = 0;
  size_t entry_ = 0;
  std::optional<int> next_step_;
  bool has_arrived_ = false;  // at the call that comes next
  bool begins_alone_ = false;
  bool got_further_ = false;

  std::array<double, kLanes> times_{};
  std::array<double, kPasses> ends_{};
  /// By program and frame: when the call of each step was done, by segment.
  std::map<std::pair<int, int>, std::vector<std::vector<double>>> done_;
  std::vector<Call> calls_;
  std::array<std::vector<size_t>, kLanes> calls_of_lane_;  // the indices of calls that may be open
  std::vector<Computed> computed_;                         // from the predicted run on
  double computing_ = 0;
  std::map<BoundaryKind, PredictedSeconds> messages_;
};

}  // namespace tessera
