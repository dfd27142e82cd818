#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "device/emulated_capture.h"
#include "device/emulated_memory.h"
#include "device/emulation.h"
#include "device/stream.h"

namespace tessera {

/// Returns an event that streams of the emulated device can record.
std::unique_ptr<Event> emulated_event();

/// A stream of the emulated device: a queue of work, and a thread that does it in order. While the
/// thread works, the fence around the device's memory is open. A capture takes the work instead.
class EmulatedStream final : public Stream {
 public:
  /// Kernels run in warps of `lanes` threads.
  EmulatedStream(int lanes, const emulation::Options& options, std::shared_ptr<Fence> fence);
  /// Waits until the queued work is done.
  ~EmulatedStream() override;
  EmulatedStream(const EmulatedStream&) = delete;
  EmulatedStream& operator=(const EmulatedStream&) = delete;

  Device device() const override { return Device::emulated; }
  int lanes() const override { return lanes_; }
  void copy(void* to, const void* from, int64_t bytes) override;
  void fill_zero(void* to, int64_t bytes) override;
  void record(Event& event) override;
  void wait(const Event& event) override;
  void wait_external(const Event& event) override;
  void synchronize() override;
  void begin_capture() override;
  std::unique_ptr<Graph> end_capture() override;
  void abandon_capture() noexcept override;
  void launch(const Graph& graph) override;
  void* handle() const override;
  void emulate(const Grid& grid, std::function<void()>&& kernel) override;
  void enqueue(std::function<void()>&& work) override;

  /// Returns the capture that the stream is in; null if it is in none.
  std::shared_ptr<EmulatedCapture> capture() const;

 private:
  struct QueuedWork {
    EmulatedWork work;
    bool after_error = false;  // done even after an error, because other streams may wait for it
  };

  /// Adds work to the capture if the stream is in one, or else to the queue.
  void queue_or_capture(EmulatedWork&& work);
  void queue(QueuedWork work);
  void set_capture(std::shared_ptr<EmulatedCapture> capture);
  std::exception_ptr error();
  void run_worker();
  void do_queued_work();

  int lanes_;
  emulation::Emulator emulator_;
  std::vector<int64_t> external_records_;  // the worker's: those of the graph that it runs
  std::shared_ptr<Fence> fence_;
  mutable std::mutex mutex_;  // guards the members below
  std::shared_ptr<EmulatedCapture> capture_;
  std::condition_variable changed_;
  std::deque<QueuedWork> queue_;
  bool busy_ = false;         // the worker does work
  bool ends_ = false;         // the worker ends when the queue is empty
  std::exception_ptr error_;  // the first error of the stream's work
  std::thread worker_;        // last, because it uses the others
};

}  // namespace tessera
