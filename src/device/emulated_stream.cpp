#include "device/emulated_stream.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

/// How often an event was recorded and reached. The streams share it with the event.
struct EventState {
  std::mutex mutex;
  std::condition_variable changed;
  int64_t recorded = 0;
  int64_t reached = 0;
  Clock::time_point time;

  void reach(int64_t number) {
    const std::scoped_lock lock(mutex);
    reached = std::max(reached, number);
    time = Clock::now();
    changed.notify_all();
  }
  void wait(int64_t number) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return reached >= number; });
  }
};

class EmulatedEvent final : public Event {
 public:
  bool reached() const override {
    const std::scoped_lock lock(state->mutex);
    return state->reached == state->recorded;
  }
  void synchronize() const override { state->wait(recorded()); }
  double seconds_since(const Event& earlier) const override {
    TESSERA_CHECK(reached() && earlier.reached(), "the time of an event that was not reached");
    const auto& other = dynamic_cast<const EmulatedEvent&>(earlier);
    return std::chrono::duration<double>(state->time - other.state->time).count();
  }
  int64_t recorded() const {
    const std::scoped_lock lock(state->mutex);
    return state->recorded;
  }

  std::shared_ptr<EventState> state = std::make_shared<EventState>();
};

class EmulatedGraph final : public Graph {
 public:
  std::shared_ptr<const std::vector<std::function<void()>>> works;
};

}  // namespace

std::unique_ptr<Event> emulated_event() { return std::make_unique<EmulatedEvent>(); }

EmulatedStream::EmulatedStream(int lanes, const emulation::Options& options,
                               std::shared_ptr<Fence> fence)
    : lanes_(lanes), emulator_(options), fence_(std::move(fence)), worker_([this] { live(); }) {}

EmulatedStream::~EmulatedStream() {
  {
    const std::scoped_lock lock(mutex_);
    ends_ = true;
    changed_.notify_all();
  }
  worker_.join();
}

void EmulatedStream::copy(void* to, const void* from, int64_t bytes) {
  enqueue([=] { std::memcpy(to, from, static_cast<size_t>(bytes)); });
}

void EmulatedStream::fill_zero(void* to, int64_t bytes) {
  enqueue([=] { std::memset(to, 0, static_cast<size_t>(bytes)); });
}

void EmulatedStream::record(Event& event) {
  TESSERA_CHECK(!captured_, "an event in a capture");
  const std::shared_ptr<EventState> state = dynamic_cast<EmulatedEvent&>(event).state;
  int64_t number = 0;
  {
    const std::scoped_lock lock(state->mutex);
    number = ++state->recorded;
  }
  push({[=] { state->reach(number); }, /*always=*/true});
}

void EmulatedStream::wait(const Event& event) {
  TESSERA_CHECK(!captured_, "an event in a capture");
  const auto& emulated = dynamic_cast<const EmulatedEvent&>(event);
  push({[state = emulated.state, number = emulated.recorded()] { state->wait(number); },
        /*always=*/true});
}

void EmulatedStream::synchronize() {
  TESSERA_CHECK(!captured_, "the host waits in a capture");
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return items_.empty() && !busy_; });
  if (error_) std::rethrow_exception(error_);
}

void EmulatedStream::begin_capture() {
  TESSERA_CHECK(!captured_, "a capture within a capture");
  captured_ = std::make_shared<std::vector<Work>>();
}

std::unique_ptr<Graph> EmulatedStream::end_capture() {
  TESSERA_CHECK(captured_ != nullptr, "the end of a capture that did not begin");
  auto graph = std::make_unique<EmulatedGraph>();
  graph->works = std::exchange(captured_, nullptr);
  return graph;
}

void EmulatedStream::launch(const Graph& graph) {
  enqueue([works = dynamic_cast<const EmulatedGraph&>(graph).works] {
    for (const Work& work : *works) work();
  });
}

void* EmulatedStream::handle() const {
  throw InternalError("a stream of the emulated device has no handle");
}

void EmulatedStream::emulate(const Grid& grid, std::function<void()>&& kernel) {
  check_grid(grid);
  enqueue([this, grid, kernel = std::move(kernel)] { emulator_.run(grid, lanes_, kernel); });
}

void EmulatedStream::enqueue(Work&& work) {
  if (captured_) {
    captured_->push_back(std::move(work));
  } else {
    push({std::move(work)});
  }
}

void EmulatedStream::push(Item item) {
  const std::scoped_lock lock(mutex_);
  items_.push_back(std::move(item));
  changed_.notify_all();
}

/// The life of the worker.
void EmulatedStream::live() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ends_ || !items_.empty(); });
    if (items_.empty()) return;
    busy_ = true;
    lock.unlock();
    {
      const OpenFence open(*fence_);
      do_items();
    }
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

/// Does items until there are none. After an error only those are done that others wait for.
void EmulatedStream::do_items() {
  std::unique_lock lock(mutex_);
  while (!items_.empty()) {
    const Item item = std::move(items_.front());
    items_.pop_front();
    if (error_ && !item.always) continue;
    lock.unlock();
    std::exception_ptr error;
    try {
      item.work();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error) error_ = error;
  }
}

}  // namespace tessera
