#include "device/emulated_stream.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

/// The point of a capture at which an event was recorded.
struct CapturePoint {
  std::shared_ptr<EmulatedCapture> capture;  // null if it was recorded outside
  EmulatedStream* stream = nullptr;
  size_t size = 0;  // the capture's size() at that point
};

/// The state of an event, which the event shares with streams. Records are numbered from 1.
struct EventState {
  std::mutex mutex;
  std::condition_variable changed;
  int64_t recorded = 0;
  int64_t reached = 0;
  Clock::time_point time;
  CapturePoint captured;
  std::exception_ptr error;  // the error of the stream's work before the event
  int64_t failed = 0;        // the number of the first record with the error

  void reach(int64_t number, std::exception_ptr failure) {
    const std::scoped_lock lock(mutex);
    if (!failure || !error) failed = number;
    error = std::move(failure);
    reached = std::max(reached, number);
    time = Clock::now();
    changed.notify_all();
  }
  /// Waits until record `number` is reached. Throws the error of the work before it, if there is
  /// one.
  void wait(int64_t number) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return reached >= number; });
    if (error && failed <= number) std::rethrow_exception(error);
  }
};

class EmulatedEvent final : public Event {
 public:
  bool reached() const override {
    require_uncaptured();
    const std::scoped_lock lock(state->mutex);
    return state->reached == state->recorded;
  }
  void synchronize() const override {
    require_uncaptured();
    state->wait(recorded());
  }
  double seconds_since(const Event& earlier) const override {
    TESSERA_CHECK(reached() && earlier.reached(), "the time of an event that was not reached");
    const auto& other = dynamic_cast<const EmulatedEvent&>(earlier);
    return std::chrono::duration<double>(state->time - other.state->time).count();
  }
  int64_t recorded() const {
    const std::scoped_lock lock(state->mutex);
    return state->recorded;
  }
  CapturePoint captured() const {
    const std::scoped_lock lock(state->mutex);
    return state->captured;
  }

  std::shared_ptr<EventState> state = std::make_shared<EventState>();

 private:
  void require_uncaptured() const {
    if (const auto capture = captured().capture) capture->refuse("the host to ask for its events");
  }
};

class EmulatedGraph final : public Graph {
 public:
  std::shared_ptr<const std::vector<EmulatedWork>> works;
};

}  // namespace

std::unique_ptr<Event> emulated_event() { return std::make_unique<EmulatedEvent>(); }

EmulatedStream::EmulatedStream(int lanes, const emulation::Options& options,
                               std::shared_ptr<Fence> fence)
    : lanes_(lanes), emulator_(options), fence_(std::move(fence)), worker_([this] { live(); }) {}

EmulatedStream::~EmulatedStream() {
  if (const auto own = capture()) own->leave(*this);
  {
    const std::scoped_lock lock(mutex_);
    ends_ = true;
    changed_.notify_all();
  }
  worker_.join();
}

void EmulatedStream::copy(void* to, const void* from, int64_t bytes) {
  enqueue([=] {
    std::copy_n(static_cast<const std::byte*>(from), bytes, static_cast<std::byte*>(to));
  });
}

void EmulatedStream::fill_zero(void* to, int64_t bytes) {
  enqueue([=] { std::fill_n(static_cast<std::byte*>(to), bytes, std::byte{0}); });
}

void EmulatedStream::record(Event& event) {
  const std::shared_ptr<EventState> state = dynamic_cast<EmulatedEvent&>(event).state;
  const std::shared_ptr<EmulatedCapture> capture = this->capture();
  int64_t number = 0;
  {
    const std::scoped_lock lock(state->mutex);
    state->captured = {};
    if (capture) {
      state->captured = {capture, this, capture->size()};
      return;
    }
    number = ++state->recorded;
  }
  push({[this, state, number](EmulatedStream&) { state->reach(number, error()); },
        /*always=*/true});
}

void EmulatedStream::wait(const Event& event) {
  const auto& emulated = dynamic_cast<const EmulatedEvent&>(event);
  const std::shared_ptr<EmulatedCapture> own = capture();
  const CapturePoint point = emulated.captured();
  if (!point.capture) {
    if (own) own->refuse("to wait for an event from outside of it");
    push({[state = emulated.state, number = emulated.recorded()](EmulatedStream&) {
            state->wait(number);
          },
          /*always=*/true});
    return;
  }
  if (point.capture->ended() || (own && own != point.capture)) {
    point.capture->refuse("its events to be waited for by streams outside of it");
  }
  point.capture->wait(*this, *point.stream, point.size);
  set_capture(point.capture);
}

void EmulatedStream::synchronize() {
  if (const auto own = capture()) own->refuse("the host to wait for its streams");
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return items_.empty() && !busy_; });
  if (error_) std::rethrow_exception(error_);
}

void EmulatedStream::begin_capture() {
  TESSERA_CHECK(!capture(), "a capture within a capture");
  set_capture(std::make_shared<EmulatedCapture>(*this));
}

std::unique_ptr<Graph> EmulatedStream::end_capture() {
  const std::shared_ptr<EmulatedCapture> ended = capture();
  TESSERA_CHECK(ended && ended->began_on(*this), "the end of a capture that did not begin here");
  for (EmulatedStream* const stream : ended->streams()) stream->set_capture(nullptr);
  auto graph = std::make_unique<EmulatedGraph>();
  graph->works = ended->end();
  return graph;
}

void EmulatedStream::abandon_capture() noexcept {
  if (!capture()) return;
  try {
    end_capture();
  } catch (const Error&) {  // the capture was invalid
    return;
  }
}

void EmulatedStream::launch(const Graph& graph) {
  give([works = dynamic_cast<const EmulatedGraph&>(graph).works](EmulatedStream& by) {
    for (const EmulatedWork& work : *works) work(by);
  });
}

void* EmulatedStream::handle() const {
  throw InternalError("a stream of the emulated device has no handle");
}

void EmulatedStream::emulate(const Grid& grid, std::function<void()>&& kernel) {
  check_grid(grid);
  give([grid, kernel = std::move(kernel)](EmulatedStream& by) {
    by.emulator_.run(grid, by.lanes_, kernel);
  });
}

void EmulatedStream::enqueue(std::function<void()>&& work) {
  give([work = std::move(work)](EmulatedStream&) { work(); });
}

void EmulatedStream::give(EmulatedWork&& work) {
  if (const auto capture = this->capture()) {
    capture->add(*this, std::move(work));
  } else {
    push({std::move(work)});
  }
}

std::shared_ptr<EmulatedCapture> EmulatedStream::capture() const {
  const std::scoped_lock lock(mutex_);
  return capture_;
}

void EmulatedStream::set_capture(std::shared_ptr<EmulatedCapture> capture) {
  const std::scoped_lock lock(mutex_);
  capture_ = std::move(capture);
}

std::exception_ptr EmulatedStream::error() {
  const std::scoped_lock lock(mutex_);
  return error_;
}

void EmulatedStream::push(Item item) {
  const std::scoped_lock lock(mutex_);
  items_.push_back(std::move(item));
  changed_.notify_all();
}

/// Runs on the worker thread: does items until the stream is destroyed and none is left.
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

/// Does items until there are none. After an error it does only those that other streams may wait
/// for.
void EmulatedStream::do_items() {
  std::unique_lock lock(mutex_);
  while (!items_.empty()) {
    const Item item = std::move(items_.front());
    items_.pop_front();
    if (error_ && !item.always) continue;
    lock.unlock();
    std::exception_ptr error;
    try {
      item.work(*this);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error && !error_) error_ = error;
  }
}

}  // namespace tessera
