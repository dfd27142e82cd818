#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "device/device.h"
#include "device/grid.h"

namespace tessera {

/// A point in a stream's work. Accelerator::make_event() makes events.
class Event {
 public:
  virtual ~Event() = default;
  /// Returns whether the stream has reached the point that was recorded last; true if none was.
  virtual bool reached() const = 0;
  /// Waits until the stream has reached that point. Throws Error if the work before it failed.
  virtual void synchronize() const = 0;
  /// Returns the seconds from an earlier event to this one. Both must be reached.
  virtual double seconds_since(const Event& earlier) const = 0;
};

/// Work that was captured from a stream. Stream::launch() enqueues all of it, any number of times.
class Graph {
 public:
  virtual ~Graph() = default;
};

/// The priority of a stream. A device begins the work of streams with high priority first.
enum class Priority : uint8_t { normal, high };

/// A queue of work for a device. The device does the work in order, asynchronously to the caller.
/// Work of different streams runs at the same time unless events order it. If work fails, the error
/// is thrown by the next call of synchronize(), or earlier, and the stream does nothing more.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual Device device() const = 0;
  /// Returns the number of threads of a warp.
  virtual int lanes() const = 0;

  /// Copies between the device's memory and pinned host memory (Accelerator::allocate_host()), in
  /// any direction. The host must not change or free its memory until the copy is done.
  virtual void copy(void* to, const void* from, int64_t bytes) = 0;
  /// Sets bytes of the device's memory to zero.
  virtual void fill_zero(void* to, int64_t bytes) = 0;

  /// Sets the event's point to the end of the work that was given to the stream so far.
  virtual void record(Event& event) = 0;
  /// Makes the work that follows wait for the point that `event` recorded last. If the work before
  /// that point failed, this stream does no more work, and its synchronize() throws the same error.
  virtual void wait(const Event& event) = 0;
  /// Does so in a capture for an event that is recorded outside of it. At each launch of the graph
  /// the work that follows waits for the point that the event has recorded last before the launch.
  virtual void wait_external(const Event& event) = 0;
  /// Waits until all work is done. Throws Error if some of it failed.
  virtual void synchronize() = 0;

  /// Begins a capture: until end_capture(), work that is given to the stream is recorded and not
  /// done. Another stream that waits for an event of the capture joins it. Before end_capture()
  /// this stream must wait for the streams that joined, itself or through others. Until then a wait
  /// for the device or an allocation by this thread throws, and makes the capture invalid.
  virtual void begin_capture() = 0;
  /// Ends the capture and returns its work. If the capture is invalid, throws Error, but ends it.
  virtual std::unique_ptr<Graph> end_capture() = 0;
  /// Ends a capture, if there is one, and discards its work. For error handlers.
  virtual void abandon_capture() noexcept = 0;
  virtual void launch(const Graph& graph) = 0;  ///< enqueues a graph's work

  /// Returns the vendor's own stream: a cudaStream_t or a hipStream_t.
  virtual void* handle() const = 0;
  /// Enqueues a kernel of the emulated device, called once for each thread of the grid. Other
  /// devices throw InternalError, because their kernels are launched by launch_kernel().
  virtual void emulate(const Grid& grid, std::function<void()>&& kernel);
  /// Enqueues other work of the emulated device. Other devices throw InternalError.
  virtual void enqueue(std::function<void()>&& work);
};

}  // namespace tessera
