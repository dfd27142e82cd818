#include "engine/host_lanes.h"

#include <algorithm>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/words.h"

namespace tessera {

std::vector<bool> steps_beside(std::span<const Lane> lanes, const Joins& joins) {
  std::vector<bool> beside(lanes.size(), false);
  for (size_t step = 0; step < lanes.size(); ++step) {
    const Lane lane = lanes[step];
    if (lane == Lane::compute) continue;
    size_t next = step + 1;
    while (next < lanes.size() && lanes[next] == lane) ++next;
    if (next == lanes.size()) continue;  // the end of the segment awaits it, or it outlasts that
    const int awaited = joins.awaited[next][static_cast<size_t>(lane)];
    beside[step] = lanes[next] != Lane::compute || awaited < static_cast<int>(step);
  }
  return beside;
}

HostLanes::HostLanes(std::span<const Lane> lanes, Run run) : run_(std::move(run)) {
  try {
    for (const Lane lane : lanes) threads_.emplace_back([this, lane] { work(lane); });
  } catch (const std::system_error& error) {
    {
      const std::scoped_lock lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    throw Error(
        "cannot start the thread for the {} of a rank ({}); raise the limits on processes (ulimit "
        "-u, pids.max) or memory (ulimit -v)",
        word(lanes[threads_.size()]), error.code().message());
  }
}

HostLanes::~HostLanes() {
  {
    const std::scoped_lock lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
}

void HostLanes::begin() {
  std::unique_lock lock(mutex_);
  if (!is_abandoned_) return;
  changed_.wait(lock, [&] { return std::ranges::none_of(states_, &State::runs); });
  for (State& state : states_) state.steps.clear();
  error_ = nullptr;
  is_abandoned_ = false;
}

int64_t HostLanes::hand_over(Lane lane, const Step& step) {
  int64_t number = 0;
  {
    const std::scoped_lock lock(mutex_);
    state(lane).steps.push_back(step);
    number = ++state(lane).last;
  }
  changed_.notify_all();
  return number;
}

bool HostLanes::are_done(const Numbers& awaited) const {
  for (size_t lane = 0; lane < kLanes; ++lane) {
    if (states_[lane].done() < awaited[lane]) return false;
  }
  return true;
}

bool HostLanes::are_all_done() const {
  return std::ranges::all_of(states_, [](const State& state) { return state.steps.empty(); });
}

template <typename Done>
void HostLanes::wait_until(Done&& done) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return error_ || done(); });
  if (error_) std::rethrow_exception(error_);
}

void HostLanes::await(const Numbers& awaited) {
  if (awaited != Numbers{}) wait_until([&] { return are_done(awaited); });
}

void HostLanes::await(Lane lane) {
  wait_until([&] { return state(lane).steps.empty(); });
}

int64_t HostLanes::note_done(Lane lane) {
  int64_t number = 0;
  {
    const std::scoped_lock lock(mutex_);
    number = ++state(lane).last;
    if (are_all_done()) return number;  // no lane waits for this step
  }
  changed_.notify_all();
  return number;
}

void HostLanes::await_all() {
  wait_until([&] { return are_all_done(); });
}

void HostLanes::throw_if_failed() const {
  const std::scoped_lock lock(mutex_);
  if (error_) std::rethrow_exception(error_);
}

bool HostLanes::abandon() noexcept {
  const std::scoped_lock lock(mutex_);
  is_abandoned_ = true;
  return std::ranges::any_of(states_, &State::runs);
}

bool HostLanes::is_abandoned() const {
  const std::scoped_lock lock(mutex_);
  return is_abandoned_;
}

void HostLanes::work(Lane lane) {
  State& own = state(lane);
  std::unique_lock lock(mutex_);
  const auto may_begin = [&] {
    return !own.steps.empty() && !is_abandoned_ && !error_ && are_done(own.steps.front().awaited);
  };
  while (true) {
    changed_.wait(lock, [&] { return ends_ || may_begin(); });
    if (ends_) return;
    const Step step = own.steps.front();
    own.runs = true;
    lock.unlock();
    std::exception_ptr error;
    try {
      std::this_thread::sleep_until(step.begin);
      run_(lane, step);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    own.runs = false;
    own.steps.pop_front();
    if (error && !error_) error_ = error;
    changed_.notify_all();
  }
}

}  // namespace tessera
