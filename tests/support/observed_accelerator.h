#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "device/emulated_accelerator.h"

namespace tessera::testing {

/// Memory that says when it is freed.
class ObservedMemory final : public DeviceMemory {
 public:
  ObservedMemory(std::unique_ptr<DeviceMemory> memory,
                 std::shared_ptr<const std::function<void()>> freed)
      : memory_(std::move(memory)), freed_(std::move(freed)) {}
  ~ObservedMemory() override {
    if (*freed_) (*freed_)();
  }
  ObservedMemory(const ObservedMemory&) = delete;
  ObservedMemory& operator=(const ObservedMemory&) = delete;
  void* address() const override { return memory_->address(); }

 private:
  std::unique_ptr<DeviceMemory> memory_;
  std::shared_ptr<const std::function<void()>> freed_;
};

/// An emulated device that counts the calls for which the host waits, and whose streams can be
/// held.
class ObservedAccelerator final : public Accelerator {
 public:
  Device device() const override { return device_->device(); }
  std::string name() const override { return device_->name(); }
  AcceleratorProperties properties() const override { return device_->properties(); }
  int64_t free_bytes() const override { return device_->free_bytes(); }
  std::unique_ptr<DeviceMemory> allocate(int64_t bytes) override {
    ++waits;
    return device_->allocate(bytes);
  }
  std::unique_ptr<DeviceMemory> allocate_host(int64_t bytes) override {
    ++waits;
    return std::make_unique<ObservedMemory>(device_->allocate_host(bytes), freed);
  }
  std::shared_ptr<Stream> make_stream(Priority priority) override {
    streams.push_back(device_->make_stream(priority));
    return streams.back();
  }
  std::unique_ptr<Event> make_event() override { return device_->make_event(); }
  void synchronize() override {
    ++waits;
    device_->synchronize();
  }
  void upload(std::span<const std::byte> from, void* to) override {
    ++waits;
    device_->upload(from, to);
  }
  void readback(const void* from, std::span<std::byte> to) override {
    ++waits;
    device_->readback(from, to);
  }

  int waits = 0;  ///< calls that wait, or may
  std::vector<std::shared_ptr<Stream>> streams;
  /// Called when pinned memory is freed.
  std::shared_ptr<std::function<void()>> freed = std::make_shared<std::function<void()>>();

 private:
  std::unique_ptr<Accelerator> device_ = open_emulated();
};

/// Keeps a stream from going on while it lives.
class HeldStream {
 public:
  explicit HeldStream(Stream& stream) {
    stream.enqueue([held = held_] {
      const std::scoped_lock lock(*held);  // waits for release()
    });
  }
  ~HeldStream() { release(); }
  HeldStream(const HeldStream&) = delete;
  HeldStream& operator=(const HeldStream&) = delete;
  void release() {
    if (lock_.owns_lock()) lock_.unlock();
  }

 private:
  std::shared_ptr<std::mutex> held_ = std::make_shared<std::mutex>();
  std::unique_lock<std::mutex> lock_{*held_};
};

}  // namespace tessera::testing
