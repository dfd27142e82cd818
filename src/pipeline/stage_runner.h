#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/posted_message.h"
#include "engine/executor.h"
#include "pipeline/run_trace.h"
#include "pipeline/stage_list.h"

namespace tessera {

/// Returns the communicator of this rank's pipeline for a kind of message. A position in it is a
/// stage.
Communicator& lane_of(const Executor& executor, BoundaryKind kind);

/// Returns the name of the call for one of the values of a message.
std::string name_of(const BoundaryMessage& message, size_t value);

/// Executes the lists of one stage: runs their actions, posts their messages and awaits them. One
/// thread uses a runner.
class StageRunner {
 public:
  /// The executor must outlive the runner. Its plan has the entries of every list that will run
  /// (StageList::for_plan()).
  explicit StageRunner(Executor& executor) : executor_(executor) {}

  /// Runs a list from its beginning to its end. Calls `before` before each action, when the
  /// program's inputs may be written that do not come from other chunks. Throws what the executor
  /// and the messages throw; memory of messages that are under way is then free of them.
  void run(const StageList& list, const std::function<void(const StageAction&)>& before);

  /// Times the actions and messages of the lists that run from now on, as seconds of `trace`; null
  /// ends that. On an accelerator the executor has the same trace, and ends it before this runner
  /// does.
  void set_trace(Trace* trace);
  /// Returns what was timed since the last trace began, and forgets it.
  std::vector<TimedEntry> take_timed() { return std::move(timed_); }

 private:
  /// A message of one side.
  struct Side {
    BoundaryMessage message;
    bool sends = false;
    auto operator<=>(const Side&) const = default;  // NOLINT(modernize-use-nullptr)
  };

  /// Makes the lanes of messages, before the first of them is posted: that waits for the ranks of
  /// the other stages, which a post must not do.
  void join_lanes(const StageList& list);
  void follow(const StageAction& entry, const std::function<void(const StageAction&)>& before);
  void follow(const StageMessage& entry);
  void post(const StageMessage& entry);
  void wait(const StageMessage& entry);
  void follow(const KeptBoundary& entry);
  void follow(const PassedBoundary& entry);
  /// Does the work of an entry, and times it if there is a trace.
  template <typename Work>
  void timed(const ScheduleEntry& entry, Work&& work);
  DeviceCall device_call() { return {.stream = executor_.stream()}; }

  Executor& executor_;
  Trace* trace_ = nullptr;
  std::vector<TimedEntry> timed_;
  bool joined_ = false;
  std::map<Side, std::vector<PostedMessage>> posted_;  // by message: one for each value
};

}  // namespace tessera
