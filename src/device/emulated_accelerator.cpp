#include "device/emulated_accelerator.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/text.h"
#include "base/usable_memory.h"
#include "device/emulated_stream.h"

namespace tessera {
namespace {

class EmulatedAccelerator final : public Accelerator {
 public:
  EmulatedAccelerator(int lanes, const emulation::Options& options, int64_t memory_bytes)
      : lanes_(lanes),
        options_(options),
        memory_bytes_(memory_bytes),
        free_memory_(std::make_shared<std::atomic<int64_t>>(memory_bytes)) {}

  Device device() const override { return Device::emulated; }
  std::string name() const override {
    return fmt::format("emulated device with warps of {} threads", lanes_);
  }
  AcceleratorProperties properties() const override {
    return {.architecture = "emulated", .lanes = lanes_, .memory_bytes = memory_bytes_};
  }
  int64_t free_bytes() const override { return *free_memory_; }

  std::unique_ptr<DeviceMemory> allocate(int64_t bytes) override {
    refuse_in_capture("memory to be allocated");
    // Subtracts before it compares, so that two threads cannot both get the last bytes. The memory,
    // which may outlive the device, gives its bytes back when it is destroyed.
    const int64_t before = free_memory_->fetch_sub(bytes);
    std::shared_ptr<void> reservation(
        nullptr, [bytes, free = free_memory_](void*) { free->fetch_add(bytes); });
    if (before < bytes) {
      throw Error("the emulated device has {} of memory free, {} more are wanted",
                  format_bytes(before), format_bytes(bytes));
    }
    return emulated_memory(bytes, fence_, std::move(reservation));
  }
  std::unique_ptr<DeviceMemory> allocate_host(int64_t bytes) override {
    refuse_in_capture("memory to be allocated");
    return emulated_memory(bytes, nullptr);
  }
  std::shared_ptr<Stream> make_stream(Priority /*priority*/) override {
    auto stream = std::make_shared<EmulatedStream>(lanes_, options_, fence_);
    const std::scoped_lock lock(mutex_);
    streams_.push_back(stream);
    return stream;
  }
  std::unique_ptr<Event> make_event() override { return emulated_event(); }

  /// Waits for all streams, even if the work of one failed, and then throws the first error.
  void synchronize() override {
    refuse_in_capture("the host to wait");
    std::exception_ptr error;
    for (const auto& stream : streams()) {
      try {
        stream->synchronize();
      } catch (...) {
        if (!error) error = std::current_exception();
      }
    }
    if (error) std::rethrow_exception(error);
  }
  void upload(std::span<const std::byte> from, void* to) override {
    synchronize();
    const OpenFence open(*fence_);  // else this copy by the host ends in a segmentation fault
    std::ranges::copy(from, static_cast<std::byte*>(to));
  }
  void readback(const void* from, std::span<std::byte> to) override {
    synchronize();
    const OpenFence open(*fence_);
    std::copy_n(static_cast<const std::byte*>(from), to.size(), to.data());
  }

 private:
  /// Returns the streams that still exist, and forgets the others.
  std::vector<std::shared_ptr<EmulatedStream>> streams() {
    const std::scoped_lock lock(mutex_);
    std::erase_if(streams_, [](const auto& stream) { return stream.expired(); });
    std::vector<std::shared_ptr<EmulatedStream>> all;
    for (const auto& weak : streams_) {
      if (auto stream = weak.lock()) all.push_back(std::move(stream));
    }
    return all;
  }

  /// If this thread has begun a capture that has not ended, makes it invalid and throws Error.
  /// `what` completes "a capture of the emulated device does not allow ...".
  void refuse_in_capture(const char* what) {
    for (const auto& stream : streams()) {
      const auto capture = stream->capture();
      if (capture && capture->began_on_this_thread()) capture->refuse(what);
    }
  }

  int lanes_;
  emulation::Options options_;
  int64_t memory_bytes_;
  std::shared_ptr<std::atomic<int64_t>> free_memory_;  // bytes that are not allocated
  std::shared_ptr<Fence> fence_ = std::make_shared<Fence>();
  std::mutex mutex_;  // guards streams_
  std::vector<std::weak_ptr<EmulatedStream>> streams_;
};

}  // namespace

std::unique_ptr<Accelerator> open_emulated(int lanes, const emulation::Options& options,
                                           int64_t memory_bytes) {
  TESSERA_CHECK(lanes == 32 || lanes == 64, "warps of {} threads; 32 or 64 are built", lanes);
  return std::make_unique<EmulatedAccelerator>(
      lanes, options, memory_bytes > 0 ? memory_bytes : usable_memory().bytes);
}

}  // namespace tessera
