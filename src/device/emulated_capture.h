#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <thread>
#include <vector>

namespace tessera {

class EmulatedStream;

/// Work of an emulated stream. Its argument is the stream that does it, because a graph may be
/// launched on any stream.
using EmulatedWork = std::function<void(EmulatedStream&)>;

/// The work that streams capture together, by CUDA's rules. While a stream is in a capture, its
/// work is recorded and not done. The capture begins on one stream, and a stream that waits for one
/// of its events joins. Before the end the first stream must wait for every stream that joined,
/// itself or through others. A call that is not allowed makes the capture invalid: end() fails.
class EmulatedCapture {
 public:
  explicit EmulatedCapture(EmulatedStream& first) : first_(&first), streams_{&first} {}

  bool began_on(const EmulatedStream& stream) const { return first_ == &stream; }
  /// Returns whether the calling thread began the capture. Until the end that thread must neither
  /// wait for the device nor allocate memory.
  bool began_on_this_thread() const { return thread_ == std::this_thread::get_id(); }
  bool ended() const { return ended_; }
  const std::set<EmulatedStream*>& streams() const { return streams_; }
  /// Returns the number of pieces of work so far.
  size_t size() const { return works_->size(); }

  void add(EmulatedStream& stream, EmulatedWork&& work);
  /// Makes `stream` join the capture and wait for an event that `recording_stream` recorded when
  /// the capture had `recorded_size` pieces of work.
  void wait(EmulatedStream& stream, EmulatedStream& recording_stream, size_t recorded_size);
  /// Adds an event from outside, of which `last_record` returns the number of the last record.
  /// Returns the event's index in externals().
  size_t add_external(std::function<int64_t()>&& last_record);
  /// Returns the functions that were added. A launch of the graph calls them.
  const std::vector<std::function<int64_t()>>& externals() const { return externals_; }
  /// Removes a stream that is about to be destroyed.
  void leave(EmulatedStream& stream) { streams_.erase(&stream); }
  /// Makes the capture invalid and throws Error. `what` completes "does not allow ...".
  [[noreturn]] void refuse(std::string_view what);

  /// Ends the capture and returns its pieces of work in the order in which they were given, which
  /// every event allows. Throws Error if it is invalid, or if a stream that joined was not awaited.
  std::shared_ptr<const std::vector<EmulatedWork>> end();

 private:
  /// Notes that no stream has waited yet for the work and waits of `stream` so far.
  void note_unawaited(EmulatedStream& stream);

  EmulatedStream* first_;
  std::set<EmulatedStream*> streams_;
  /// The streams, other than the first, whose last work or wait no stream has waited for yet. The
  /// value is the capture's size() after that work or wait.
  std::map<EmulatedStream*, size_t> unawaited_;
  std::shared_ptr<std::vector<EmulatedWork>> works_ = std::make_shared<std::vector<EmulatedWork>>();
  std::vector<std::function<int64_t()>> externals_;
  std::thread::id thread_ = std::this_thread::get_id();
  bool valid_ = true;
  bool ended_ = false;
};

}  // namespace tessera
