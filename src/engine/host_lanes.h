#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <list>
#include <mutex>
#include <span>
#include <vector>

#include "base/thread.h"
#include "engine/joins.h"

namespace tessera {

/// Returns by step whether a lane's own thread runs it. A step that the compute lane awaits before
/// anything else begins has nothing to run beside: the caller's thread runs it. `lanes` are those
/// of the steps.
std::vector<bool> steps_beside(std::span<const Lane> lanes, const Joins& joins);

/// The executor's lanes on the processor: a thread for each lane that works beside the caller's
/// thread, which is the compute lane. Threads without work, and those that wait, sleep. One thread
/// uses this.
///
/// The steps of a lane are numbered from 1, in the order in which they run. If a step fails, the
/// steps that have not begun are left out, and the next wait throws the first error.
class HostLanes {
 public:
  using Clock = std::chrono::steady_clock;

  /// By lane: the number of a step; 0 for none.
  using Numbers = std::array<int64_t, kLanes>;

  /// A step to run.
  struct Step {
    size_t program = 0;
    size_t frame = 0;
    size_t node = 0;
    Numbers awaited{};          ///< the steps that must be done before, and all before them
    Clock::time_point begin{};  ///< the time before which it may not begin, in a timed run
  };
  /// Runs a step on the thread of a lane.
  using Run = std::function<void(Lane lane, const Step& step)>;

  /// Starts the threads of these lanes. Throws Error if the system refuses one.
  HostLanes(std::span<const Lane> lanes, Run run);
  /// Leaves out steps that have not begun, and waits for those that have.
  ~HostLanes();
  HostLanes(const HostLanes&) = delete;
  HostLanes& operator=(const HostLanes&) = delete;

  /// Begins an action. If steps were abandoned, waits for those that still run, and forgets them
  /// all.
  void begin();
  /// Hands a step to the thread of its lane, and returns its number.
  int64_t hand_over(Lane lane, const Step& step);
  /// Waits until the steps are done. Throws the error of the first step that failed.
  void await(const Numbers& awaited);
  /// Waits until a lane has done all of its steps, as await() does. The caller may then run the
  /// next one itself.
  void await(Lane lane);
  /// Notes that the caller has run the next step of a lane, and returns its number.
  int64_t note_done(Lane lane);
  /// Waits for all steps, as await() does.
  void await_all();
  /// Throws the error of the first step that failed, if one has.
  void throw_if_failed() const;
  /// Gives up after an error: leaves out the steps that have not begun. Returns whether a step
  /// still runs.
  bool abandon() noexcept;
  bool is_abandoned() const;

 private:
  struct State {
    std::deque<Step> steps;  // handed over, and not done
    int64_t last = 0;        // the number of the last step that was handed over, or that is done
    bool runs = false;       // whether the thread is within a step

    int64_t done() const { return last - std::ssize(steps); }
  };

  void work(Lane lane);
  State& state(Lane lane) { return states_[static_cast<size_t>(lane)]; }
  bool are_done(const Numbers& awaited) const;
  bool are_all_done() const;
  /// Waits until done() returns true or a step has failed, and throws its error.
  template <typename Done>
  void wait_until(Done&& done);

  Run run_;
  mutable std::mutex mutex_;  // guards what follows, but not the threads
  std::condition_variable changed_;
  std::array<State, kLanes> states_;  // by lane
  std::exception_ptr error_;          // of the first step that failed
  bool is_abandoned_ = false;         // whether steps that have not begun are left out
  bool ends_ = false;
  std::list<Thread> threads_;
};

}  // namespace tessera
