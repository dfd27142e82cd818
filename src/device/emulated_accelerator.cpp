#include "device/emulated_accelerator.h"

#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/physical_memory.h"
#include "device/emulated_stream.h"

namespace tessera {
namespace {

class EmulatedAccelerator final : public Accelerator {
 public:
  EmulatedAccelerator(int lanes, const emulation::Options& options)
      : lanes_(lanes), options_(options) {}

  Device device() const override { return Device::emulated; }
  std::string name() const override {
    return fmt::format("emulated device with warps of {} threads", lanes_);
  }
  int64_t free_bytes() const override { return physical_memory(); }

  std::unique_ptr<DeviceMemory> allocate(int64_t bytes) override {
    return emulated_memory(bytes, fence_);
  }
  std::unique_ptr<DeviceMemory> allocate_host(int64_t bytes) override {
    return emulated_memory(bytes, nullptr);
  }
  std::shared_ptr<Stream> make_stream(Priority /*priority*/) override {
    auto stream = std::make_shared<EmulatedStream>(lanes_, options_, fence_);
    const std::scoped_lock lock(mutex_);
    streams_.push_back(stream);
    return stream;
  }
  std::unique_ptr<Event> make_event() override { return emulated_event(); }

  void synchronize() override {
    const std::scoped_lock lock(mutex_);
    std::erase_if(streams_, [](const auto& stream) { return stream.expired(); });
    for (const auto& weak : streams_) {
      if (const auto stream = weak.lock()) stream->synchronize();
    }
  }
  void upload(std::span<const std::byte> from, void* to) override {
    synchronize();
    const OpenFence open(*fence_);
    std::memcpy(to, from.data(), from.size());
  }
  void readback(const void* from, std::span<std::byte> to) override {
    synchronize();
    const OpenFence open(*fence_);
    std::memcpy(to.data(), from, to.size());
  }

 private:
  int lanes_;
  emulation::Options options_;
  std::shared_ptr<Fence> fence_ = std::make_shared<Fence>();
  std::mutex mutex_;
  std::vector<std::weak_ptr<EmulatedStream>> streams_;
};

}  // namespace

std::unique_ptr<Accelerator> open_emulated(int lanes, const emulation::Options& options) {
  TESSERA_CHECK(lanes == 32 || lanes == 64, "warps of {} threads; 32 or 64 are built", lanes);
  return std::make_unique<EmulatedAccelerator>(lanes, options);
}

}  // namespace tessera
