#pragma once

#include <memory>
#include <utility>

#include "device/gpu_call.h"
#include "device/stream.h"
#include "device/wait_checks.h"

namespace tessera {

// Streams, events and graphs on top of the runtime of a vendor's GPUs. `Api` is CudaApi
// (cuda_accelerator_cuda.cpp) or HipApi (hip_accelerator_hip.cpp). It names the runtime's types and
// functions, most of which differ only in their prefix. Destructors ignore errors, because a device
// that has failed returns its error from each later call.

template <typename Api>
class GpuEvent final : public Event {
 public:
  explicit GpuEvent(std::shared_ptr<const WaitChecks> checks) : checks_(std::move(checks)) {
    call_gpu<Api>(Api::event_create, &event_, 0U);
  }
  ~GpuEvent() override { (void)Api::event_destroy.function(event_); }
  GpuEvent(const GpuEvent&) = delete;
  GpuEvent& operator=(const GpuEvent&) = delete;

  bool reached() const override { return is_ready<Api>(Api::event_query, event_); }
  void synchronize() const override {
    if (checks_->any()) checks_->wait([&] { return reached(); });
    call_gpu<Api>(Api::event_synchronize, event_);
  }
  double seconds_since(const Event& earlier) const override {
    float milliseconds = 0;
    const auto& begin = dynamic_cast<const GpuEvent&>(earlier);
    call_gpu<Api>(Api::event_elapsed_time, &milliseconds, begin.event_, event_);
    return static_cast<double>(milliseconds) * 1e-3;
  }

  typename Api::Event handle() const { return event_; }

 private:
  std::shared_ptr<const WaitChecks> checks_;
  typename Api::Event event_ = nullptr;
};

template <typename Api>
class GpuGraph final : public Graph {
 public:
  /// Makes an executable graph of captured work, and frees `captured`.
  explicit GpuGraph(typename Api::Graph captured) {
    const typename Api::Code code =
        Api::graph_instantiate.function(&executable_, captured, /*flags=*/0ULL);
    (void)Api::graph_destroy.function(captured);
    if (code != Api::kSuccess) throw_gpu_error<Api>(Api::graph_instantiate.name, code);
  }
  /// Waits for the device, which may still be doing the graph's work.
  ~GpuGraph() override {
    (void)Api::device_synchronize.function();
    (void)Api::graph_exec_destroy.function(executable_);
  }
  GpuGraph(const GpuGraph&) = delete;
  GpuGraph& operator=(const GpuGraph&) = delete;

  typename Api::GraphExec handle() const { return executable_; }

 private:
  typename Api::GraphExec executable_ = nullptr;
};

template <typename Api>
class GpuStream final : public Stream {
 public:
  /// `lanes` is the number of threads of a warp.
  GpuStream(int lanes, Priority priority, std::shared_ptr<const WaitChecks> checks)
      : lanes_(lanes), checks_(std::move(checks)) {
    int lowest = 0, highest = 0;  // a higher priority is a smaller number
    call_gpu<Api>(Api::stream_priority_range, &lowest, &highest);
    call_gpu<Api>(Api::stream_create, &stream_, Api::kNonBlocking,
                  priority == Priority::high ? highest : lowest);
  }
  /// Destroys the stream. The device still does the work that the stream has.
  ~GpuStream() override {
    GpuStream::abandon_capture();
    (void)Api::stream_destroy.function(stream_);
  }
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;

  Device device() const override { return Api::kDevice; }
  int lanes() const override { return lanes_; }

  void copy(void* to, const void* from, int64_t bytes) override {
    if (bytes == 0) return;
    call_gpu<Api>(Api::memcpy_async, to, from, static_cast<size_t>(bytes), Api::kCopyDefault,
                  stream_);
  }
  void fill_zero(void* to, int64_t bytes) override {
    if (bytes == 0) return;
    call_gpu<Api>(Api::memset_async, to, 0, static_cast<size_t>(bytes), stream_);
  }
  /// Records a point of the stream. In a capture, a stream that waits for the event joins.
  void record(Event& event) override {
    call_gpu<Api>(Api::event_record, dynamic_cast<GpuEvent<Api>&>(event).handle(), stream_);
  }
  void wait(const Event& event) override {
    call_gpu<Api>(Api::stream_wait_event, stream_,
                  dynamic_cast<const GpuEvent<Api>&>(event).handle(), 0U);
  }
  void wait_external(const Event& event) override {
    constexpr unsigned kExternal = 1;  // cudaEventWaitExternal and hipEventWaitExternal
    call_gpu<Api>(Api::stream_wait_event, stream_,
                  dynamic_cast<const GpuEvent<Api>&>(event).handle(), kExternal);
  }
  void synchronize() override {
    TESSERA_CHECK(!capturing_, "the host waits in a capture");
    if (checks_->any()) checks_->wait([&] { return done(); });
    call_gpu<Api>(Api::stream_synchronize, stream_);
  }
  /// Returns whether all work that was given so far is done.
  bool done() const { return is_ready<Api>(Api::stream_query, stream_); }

  void begin_capture() override {
    TESSERA_CHECK(!capturing_, "a capture within a capture");
    call_gpu<Api>(Api::stream_begin_capture, stream_, Api::kCaptureThreadLocal);
    capturing_ = true;
  }
  std::unique_ptr<Graph> end_capture() override {
    TESSERA_CHECK(capturing_, "the end of a capture that did not begin");
    capturing_ = false;
    typename Api::Graph graph = nullptr;
    call_gpu<Api>(Api::stream_end_capture, stream_, &graph);
    return std::make_unique<GpuGraph<Api>>(graph);
  }
  void abandon_capture() noexcept override {
    if (!std::exchange(capturing_, false)) return;
    typename Api::Graph graph = nullptr;
    if (Api::stream_end_capture.function(stream_, &graph) != Api::kSuccess) {
      (void)Api::get_last_error();
    }
    if (graph != nullptr) (void)Api::graph_destroy.function(graph);
  }
  void launch(const Graph& graph) override {
    call_gpu<Api>(Api::graph_launch, dynamic_cast<const GpuGraph<Api>&>(graph).handle(), stream_);
  }

  void* handle() const override { return stream_; }

 private:
  int lanes_;
  std::shared_ptr<const WaitChecks> checks_;
  bool capturing_ = false;
  typename Api::Stream stream_ = nullptr;
};

}  // namespace tessera
