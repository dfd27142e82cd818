#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <thread>
#include <vector>

namespace tessera {

class EmulatedStream;

/// Work of an emulated stream. It gets the stream that does it: a graph is launched on any.
using EmulatedWork = std::function<void(EmulatedStream&)>;

/// What streams capture together, by CUDA's rules. It begins on one stream. Streams that wait for
/// an event of it come into it, and before the end the first stream must wait for them. A call that
/// a capture does not allow makes it invalid, and its end fails.
class EmulatedCapture {
 public:
  explicit EmulatedCapture(EmulatedStream& first) : first_(&first), streams_{&first} {}

  bool began_on(const EmulatedStream& stream) const { return first_ == &stream; }
  /// Whether the calling thread began it: that thread may neither wait nor allocate meanwhile.
  bool of_this_thread() const { return thread_ == std::this_thread::get_id(); }
  bool ended() const { return ended_; }
  const std::set<EmulatedStream*>& streams() const { return streams_; }
  /// The number of works so far.
  size_t size() const { return works_->size(); }

  void add(EmulatedStream& stream, EmulatedWork&& work);
  /// Lets `stream`, which comes into the capture, wait for an event. Stream `of` recorded it when
  /// the capture had `size` works.
  void wait(EmulatedStream& stream, EmulatedStream& of, size_t size);
  /// Takes out a stream that is destroyed.
  void leave(EmulatedStream& stream) { streams_.erase(&stream); }
  /// Makes the capture invalid and throws Error: `what` is not allowed in one.
  [[noreturn]] void refuse(std::string_view what);

  /// Ends the capture and returns its works in the order in which they were given, which every
  /// event allows. Throws Error if it is invalid, or if the first stream did not wait for another.
  std::shared_ptr<const std::vector<EmulatedWork>> end();

 private:
  void open(EmulatedStream& stream);

  EmulatedStream* first_;
  std::set<EmulatedStream*> streams_;
  std::map<EmulatedStream*, size_t> open_;  // the size after the last work that nothing waits for
  std::shared_ptr<std::vector<EmulatedWork>> works_ = std::make_shared<std::vector<EmulatedWork>>();
  std::thread::id thread_ = std::this_thread::get_id();
  bool valid_ = true;
  bool ended_ = false;
};

}  // namespace tessera
