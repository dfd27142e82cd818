#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "device/device.h"
#include "device/grid.h"

namespace tessera {

/// A point in a stream's work. Made by Accelerator::make_event().
class Event {
 public:
  virtual ~Event() = default;
  /// Whether the stream has come to the point that was recorded last. True if none was.
  virtual bool reached() const = 0;
  /// Waits for that. Throws Error if the stream's work before it failed.
  virtual void synchronize() const = 0;
  /// The seconds from an earlier event to this one. Both must be reached.
  virtual double seconds_since(const Event& earlier) const = 0;
};

/// Work that was captured from a stream, to be launched at once again and again.
class Graph {
 public:
  virtual ~Graph() = default;
};

/// Which of several streams' work a device begins first.
enum class Priority : uint8_t { normal, high };

/// A queue of work for a device, which does it in order while the caller goes on. Work of different
/// streams runs at the same time unless events order it. If work fails, the error is thrown by the
/// next call of synchronize(), or earlier, and the stream does nothing more.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual Device device() const = 0;
  /// The number of threads of a warp.
  virtual int lanes() const = 0;

  /// Copies between the device's memory and pinned memory of the host (see HostMemory), in any
  /// direction. The host's memory must stay as it is until the stream has come to it.
  virtual void copy(void* to, const void* from, int64_t bytes) = 0;
  /// Sets bytes of the device's memory to zero.
  virtual void fill_zero(void* to, int64_t bytes) = 0;

  virtual void record(Event& event) = 0;
  /// Lets the work that follows wait for the point that was recorded last. If the work before that
  /// point failed, what follows is not done, and synchronize() throws that error here too.
  virtual void wait(const Event& event) = 0;
  /// Waits until all work is done. Throws Error if some of it failed.
  virtual void synchronize() = 0;

  /// Work given from here to end_capture() is not done but kept. A stream that waits for an event
  /// of a capture comes into it, and this stream must wait for that one before the end. Meanwhile
  /// this thread may neither wait for the device nor allocate memory of it: that throws Error and
  /// makes the capture invalid.
  virtual void begin_capture() = 0;
  /// Throws Error if the capture is invalid. It is over then too.
  virtual std::unique_ptr<Graph> end_capture() = 0;
  /// Ends a capture, if there is one, and forgets its work, for the handler of an error.
  virtual void abandon_capture() noexcept = 0;
  virtual void launch(const Graph& graph) = 0;

  /// The vendor's own stream: a cudaStream_t or a hipStream_t.
  virtual void* handle() const = 0;
  /// Enqueues a kernel of the emulated device, called once for each thread of the grid. Other
  /// devices throw InternalError, here and below: their compilers launch kernels.
  virtual void emulate(const Grid& grid, std::function<void()>&& kernel);
  /// Enqueues work of the emulated device that is no kernel.
  virtual void enqueue(std::function<void()>&& work);
};

}  // namespace tessera
