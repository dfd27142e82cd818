#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/text.h"
#include "device/accelerator.h"
#include "device/gpu_stream.h"
#include "device/grid.h"

namespace tessera {

// An accelerator on top of the runtime of a vendor's GPUs. `Api` names the runtime's types and
// functions (see device/gpu_stream.h).

/// Memory of the device, or pinned memory of the host.
template <typename Api>
class GpuMemory final : public DeviceMemory {
 public:
  GpuMemory(void* address, bool host) : address_(address), host_(host) {}
  ~GpuMemory() override {
    (void)(host_ ? Api::free_host.function(address_) : Api::free.function(address_));
  }
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;
  void* address() const override { return address_; }

 private:
  void* address_;
  bool host_;
};

/// One of the devices that the process may use.
template <typename Api>
class GpuAccelerator final : public Accelerator {
 public:
  explicit GpuAccelerator(typename Api::Properties properties)
      : name_(properties.name),
        properties_{.architecture = Api::architecture(properties),
                    .lanes = properties.warpSize,
                    .multiprocessors = properties.multiProcessorCount,
                    .memory_bytes = static_cast<int64_t>(properties.totalGlobalMem)} {}

  Device device() const override { return Api::kDevice; }
  std::string name() const override { return name_; }
  AcceleratorProperties properties() const override { return properties_; }
  int64_t free_bytes() const override {
    size_t free = 0, total = 0;
    call_gpu<Api>(Api::memory_info, &free, &total);
    return static_cast<int64_t>(free);
  }

  std::unique_ptr<DeviceMemory> allocate(int64_t bytes) override {
    void* address = nullptr;
    const size_t size = allocation_size(bytes);
    const typename Api::Code code = Api::allocate.function(&address, size);
    if (code == Api::kOutOfMemory) {
      (void)Api::get_last_error();  // clears it, as throw_gpu_error() does
      throw Error(
          "the device \"{}\" ({}) has no {} of memory in one piece; {} of it are free. Lower "
          "train.micro_batch or data.context, name more in train.recompute, or end other programs "
          "that use the device; `tessera explain` shows what takes the memory",
          word(Api::kDevice), name_, format_bytes(bytes), format_bytes(free_bytes()));
    }
    if (code != Api::kSuccess) throw_gpu_error<Api>(Api::allocate.name, code);
    auto memory = std::make_unique<GpuMemory<Api>>(address, /*host=*/false);
    call_gpu<Api>(Api::memset, address, 0, size);
    // The streams do not wait for memset, so the memory must be zero before they get it.
    call_gpu<Api>(Api::device_synchronize);
    return memory;
  }
  std::unique_ptr<DeviceMemory> allocate_host(int64_t bytes) override {
    void* address = nullptr;
    const size_t size = allocation_size(bytes);
    const typename Api::Code code = Api::allocate_host.function(&address, size, 0U);
    if (code == Api::kOutOfMemory) {
      (void)Api::get_last_error();
      throw Error(
          "the system gives no {} of pinned memory for copies to the device \"{}\": give the "
          "process more memory, or a higher limit of locked memory (ulimit -l)",
          format_bytes(bytes), word(Api::kDevice));
    }
    if (code != Api::kSuccess) throw_gpu_error<Api>(Api::allocate_host.name, code);
    auto memory = std::make_unique<GpuMemory<Api>>(address, /*host=*/true);
    std::memset(address, 0, size);
    return memory;
  }

  std::shared_ptr<Stream> make_stream(Priority priority) override {
    auto stream =
        std::make_shared<GpuStream<Api>>(properties_.lanes, priority, shared_wait_checks());
    const std::scoped_lock lock(mutex_);
    streams_.push_back(stream);
    return stream;
  }
  std::unique_ptr<Event> make_event() override {
    return std::make_unique<GpuEvent<Api>>(shared_wait_checks());
  }

  void synchronize() override {
    // Polls the streams first: within the vendor's own wait the host could not run its checks.
    if (wait_checks().any()) {
      for (const auto& stream : streams()) wait_checks().wait([&] { return stream->done(); });
    }
    call_gpu<Api>(Api::device_synchronize);
  }
  void upload(std::span<const std::byte> from, void* to) override {
    copy_after_all(to, from.data(), from.size());
  }
  void readback(const void* from, std::span<std::byte> to) override {
    copy_after_all(to.data(), from, to.size());
  }

 private:
  /// Returns the bytes to allocate: at least 1, because an allocation of 0 bytes has no address.
  static size_t allocation_size(int64_t bytes) {
    return static_cast<size_t>(std::max<int64_t>(bytes, 1));
  }

  /// Copies when all work of the device is done. Then waits once more: a copy from the host may
  /// return while its bytes are still on their way to the device.
  void copy_after_all(void* to, const void* from, size_t bytes) {
    synchronize();
    if (bytes == 0) return;
    call_gpu<Api>(Api::memcpy, to, from, bytes, Api::kCopyDefault);
    synchronize();
  }

  std::vector<std::shared_ptr<GpuStream<Api>>> streams() {
    const std::scoped_lock lock(mutex_);
    std::erase_if(streams_, [](const auto& stream) { return stream.expired(); });
    std::vector<std::shared_ptr<GpuStream<Api>>> all;
    for (const auto& weak : streams_) {
      if (auto stream = weak.lock()) all.push_back(std::move(stream));
    }
    return all;
  }

  std::string name_;
  AcceleratorProperties properties_;
  std::mutex mutex_;  // guards streams_
  std::vector<std::weak_ptr<GpuStream<Api>>> streams_;
};

/// Opens a device for a rank. Throws Error if there is none, or if this build cannot use it.
template <typename Api>
std::unique_ptr<Accelerator> open_gpu(const LocalRank& rank) {
  Api::check_driver();
  int count = 0;
  const typename Api::Code code = Api::get_device_count.function(&count);
  if (code == Api::kNoDevice || (code == Api::kSuccess && count == 0)) {
    (void)Api::get_last_error();
    const char* const visible = std::getenv(Api::kVisibleDevices);
    throw Error("the driver finds no GPU for the device \"{}\": look at `{}`; {} is {}",
                word(Api::kDevice), Api::kDeviceListCommand, Api::kVisibleDevices,
                visible == nullptr ? "not set" : fmt::format("\"{}\"", visible));
  }
  if (code != Api::kSuccess) throw_gpu_error<Api>(Api::get_device_count.name, code);
  typename Api::Properties properties{};
  const bool sees_only_own = rank.processes && count == 1;
  if (!sees_only_own && rank.ranks > count) {
    throw Error(
        "this machine has {} ranks, and {} GPUs can be used: start no more ranks on it than "
        "GPUs, and show all of them to each rank, or one ({})",
        rank.ranks, count, Api::kVisibleDevices);
  }
  const int device = sees_only_own ? 0 : rank.index;
  call_gpu<Api>(Api::get_properties, &properties, device);
  Api::check_device(properties);
  call_gpu<Api>(Api::set_device, device);
  return std::make_unique<GpuAccelerator<Api>>(properties);
}

/// Launches a kernel in a stream. `arguments` are the addresses of its parameters' values. Throws
/// Error if the device refuses the launch.
template <typename Api>
void launch_on_gpu(const void* kernel, const Grid& grid, Stream& stream, void** arguments) {
  check_grid(grid);
  // A kernel may have 48 KiB of dynamic shared memory unless its attribute allows more. Setting the
  // attribute at each launch is cheap and needs no record of earlier launches.
  constexpr int kDefaultSharedBytes = 48 * 1024;
  if (grid.shared_bytes > kDefaultSharedBytes) {
    call_gpu<Api>(Api::set_attribute, kernel, Api::kSharedBytesAttribute, grid.shared_bytes);
  }
  const typename Api::Dim3 blocks(static_cast<unsigned>(grid.blocks),
                                  static_cast<unsigned>(grid.blocks_y), 1);
  const typename Api::Dim3 threads(static_cast<unsigned>(grid.threads),
                                   static_cast<unsigned>(grid.threads_y), 1);
  const auto handle = static_cast<typename Api::Stream>(stream.handle());
  const typename Api::Code code = Api::launch_kernel.function(
      kernel, blocks, threads, arguments, static_cast<size_t>(grid.shared_bytes), handle);
  if (code == Api::kSuccess) return;
  (void)Api::get_last_error();
  throw Error(
      "the device \"{}\" refuses the kernel {} with {} x {} blocks of {} x {} threads and {} of "
      "dynamic shared memory: {} ({}): {}",
      word(Api::kDevice), Api::kernel_name(kernel, handle), grid.blocks, grid.blocks_y,
      grid.threads, grid.threads_y, format_bytes(grid.shared_bytes), Api::error_name(code),
      static_cast<int>(code), Api::error_text(code));
}

}  // namespace tessera
