#include "device/emulated_stream.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"

// Work, records of events and waits for events go through the queue of a stream. Its worker thread
// handles them in order: a kernel runs in the emulator, a record marks its event as reached, and a
// wait blocks the worker until another stream has reached the event. After an error the worker
// handles only records and waits, so that no stream waits forever. Both pass the error on.

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

/// The point of a capture at which an event was recorded.
struct CapturePoint {
  std::shared_ptr<EmulatedCapture> capture;  // null if it was recorded outside
  EmulatedStream* stream = nullptr;
  size_t size = 0;  // the capture's size() at that point
};

/// The state of an event, which the event shares with the work that records it or waits for it:
/// that work may outlast the event. Records are numbered from 1.
struct EventState {
  std::mutex mutex;  // guards all members
  std::condition_variable changed;
  int64_t recorded = 0;  // the number of the last record
  int64_t reached = 0;   // the last record that its stream has reached
  Clock::time_point time;
  CapturePoint captured;     // where a capture recorded it, if the last record was in a capture
  std::exception_ptr error;  // the error of the stream's work before the event
  int64_t first_failed = 0;  // the number of the first record with the error

  /// Notes that the stream has reached record `number`; `failure` is null if its work succeeded.
  void reach(int64_t number, std::exception_ptr failure) {
    const std::scoped_lock lock(mutex);
    if (!failure || !error) first_failed = number;
    error = std::move(failure);
    reached = std::max(reached, number);
    time = Clock::now();
    changed.notify_all();
  }
  /// Waits until record `number` is reached. Throws the error of the work before it, if any.
  void wait(int64_t number) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return reached >= number; });
    if (error && first_failed <= number) std::rethrow_exception(error);
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
    const auto& begin = dynamic_cast<const EmulatedEvent&>(earlier);
    return std::chrono::duration<double>(state->time - begin.state->time).count();
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
  /// Throws Error, and makes the capture invalid, if a capture has recorded the event.
  void require_uncaptured() const {
    if (const auto capture = captured().capture) capture->refuse("the host to ask for its events");
  }
};

class EmulatedGraph final : public Graph {
 public:
  std::shared_ptr<const std::vector<EmulatedWork>> works;
  std::vector<std::function<int64_t()>> externals;  // each returns an event's last record
};

}  // namespace

std::unique_ptr<Event> emulated_event() { return std::make_unique<EmulatedEvent>(); }

EmulatedStream::EmulatedStream(int lanes, const emulation::Options& options,
                               std::shared_ptr<Fence> fence)
    : lanes_(lanes),
      emulator_(options),
      fence_(std::move(fence)),
      worker_([this] { run_worker(); }) {}

EmulatedStream::~EmulatedStream() {
  if (const auto joined = capture()) joined->leave(*this);
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
  queue({[this, state, number](EmulatedStream&) { state->reach(number, error()); },
         /*after_error=*/true});
}

void EmulatedStream::wait(const Event& event) {
  const auto& emulated = dynamic_cast<const EmulatedEvent&>(event);
  const std::shared_ptr<EmulatedCapture> joined = capture();
  const CapturePoint point = emulated.captured();
  if (!point.capture) {
    if (joined) joined->refuse("to wait for an event from outside of it");
    queue({[state = emulated.state, number = emulated.recorded()](EmulatedStream&) {
             state->wait(number);
           },
           /*after_error=*/true});
    return;
  }
  if (point.capture->ended() || (joined && joined != point.capture)) {
    point.capture->refuse("its events to be waited for by streams outside of it");
  }
  point.capture->wait(*this, *point.stream, point.size);
  set_capture(point.capture);
}

void EmulatedStream::wait_external(const Event& event) {
  const std::shared_ptr<EmulatedCapture> joined = capture();
  TESSERA_CHECK(joined, "a wait for an event from outside of a capture, in none");
  const auto& emulated = dynamic_cast<const EmulatedEvent&>(event);
  if (emulated.captured().capture) joined->refuse("its own events to be those from outside");
  const auto last_record = [state = emulated.state] {
    const std::scoped_lock lock(state->mutex);
    return state->recorded;
  };
  const size_t index = joined->add_external(last_record);
  joined->add(*this, [state = emulated.state, index](EmulatedStream& stream) {
    state->wait(stream.external_records_.at(index));
  });
}

void EmulatedStream::synchronize() {
  if (const auto joined = capture()) joined->refuse("the host to wait for its streams");
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return queue_.empty() && !busy_; });
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
  graph->externals = ended->externals();
  return graph;
}

void EmulatedStream::abandon_capture() noexcept {
  if (!capture()) return;
  try {
    end_capture();
  } catch (const Error&) {  // the capture was invalid, and is over all the same
    return;
  }
}

void EmulatedStream::launch(const Graph& graph) {
  const auto& emulated = dynamic_cast<const EmulatedGraph&>(graph);
  std::vector<int64_t> records;
  for (const auto& last_record : emulated.externals) records.push_back(last_record());
  queue_or_capture([works = emulated.works, records = std::move(records)](EmulatedStream& stream) {
    stream.external_records_ = records;
    for (const EmulatedWork& work : *works) work(stream);
  });
}

void* EmulatedStream::handle() const {
  throw InternalError("a stream of the emulated device has no handle");
}

void EmulatedStream::emulate(const Grid& grid, std::function<void()>&& kernel) {
  check_grid(grid);
  queue_or_capture([grid, kernel = std::move(kernel)](EmulatedStream& stream) {
    stream.emulator_.run(grid, stream.lanes_, kernel);
  });
}

void EmulatedStream::enqueue(std::function<void()>&& work) {
  queue_or_capture([work = std::move(work)](EmulatedStream&) { work(); });
}

void EmulatedStream::queue_or_capture(EmulatedWork&& work) {
  if (const auto capture = this->capture()) {
    capture->add(*this, std::move(work));
  } else {
    queue({std::move(work)});
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

void EmulatedStream::queue(QueuedWork work) {
  const std::scoped_lock lock(mutex_);
  queue_.push_back(std::move(work));
  changed_.notify_all();
}

/// Runs on the worker thread: does the queued work until the stream is destroyed and none is left.
void EmulatedStream::run_worker() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ends_ || !queue_.empty(); });
    if (queue_.empty()) return;
    busy_ = true;
    lock.unlock();
    {
      const OpenFence open(*fence_);
      do_queued_work();
    }
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

/// Does the queued work until there is none, without the mutex, so that the host can queue more.
void EmulatedStream::do_queued_work() {
  std::unique_lock lock(mutex_);
  while (!queue_.empty()) {
    const QueuedWork queued = std::move(queue_.front());
    queue_.pop_front();
    if (error_ && !queued.after_error) continue;
    lock.unlock();
    std::exception_ptr error;
    try {
      queued.work(*this);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error && !error_) error_ = error;
  }
}

}  // namespace tessera
