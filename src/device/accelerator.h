#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "device/stream.h"
#include "device/wait_checks.h"

namespace tessera {

/// Memory of a device, or pinned memory of the host: zeros at first. The destructor frees it.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual void* address() const = 0;
};

/// The properties of a device, as the driver reports them.
struct AcceleratorProperties {
  std::string architecture;  ///< kernels are compiled for it: "sm_90", "gfx942"
  int lanes = 32;            ///< threads of a warp
  int multiprocessors = 1;
  int64_t memory_bytes = 0;  ///< all memory of the device
};

/// A device with memory of its own, opened for one rank. Several threads may call it at once.
class Accelerator {
 public:
  virtual ~Accelerator() = default;
  virtual Device device() const = 0;
  /// Returns the name of the product: "NVIDIA H200".
  virtual std::string name() const = 0;
  virtual AcceleratorProperties properties() const = 0;
  /// Returns the free bytes of the device's memory.
  virtual int64_t free_bytes() const = 0;

  /// Allocates memory of the device. If too few bytes are free, throws Error with their number.
  virtual std::unique_ptr<DeviceMemory> allocate(int64_t bytes) = 0;
  /// Allocates memory of the host that streams can copy from and to.
  virtual std::unique_ptr<DeviceMemory> allocate_host(int64_t bytes) = 0;

  virtual std::shared_ptr<Stream> make_stream(Priority priority) = 0;
  std::shared_ptr<Stream> make_stream() { return make_stream(Priority::normal); }
  virtual std::unique_ptr<Event> make_event() = 0;

  /// Waits until all streams have done their work. Throws Error if some of it failed.
  virtual void synchronize() = 0;
  /// Returns the checks that the host runs while it waits for this device. On the emulated device
  /// none are run, because its work always ends.
  WaitChecks& wait_checks() { return *wait_checks_; }
  /// upload() and readback() copy between the host and the device's memory. They call synchronize()
  /// first, and return when the copy is done. They are for work outside of training steps, such as
  /// initial weights and checkpoints.
  virtual void upload(std::span<const std::byte> from, void* to) = 0;
  virtual void readback(const void* from, std::span<std::byte> to) = 0;

 protected:
  std::shared_ptr<WaitChecks> shared_wait_checks() const { return wait_checks_; }

 private:
  std::shared_ptr<WaitChecks> wait_checks_ = std::make_shared<WaitChecks>();
};

/// A rank among the ranks of its machine, which opens a device. Each rank needs a GPU of its own.
struct LocalRank {
  int index = 0;  ///< among the ranks of the machine
  int ranks = 1;  ///< the number of ranks of the machine
  /// True if the ranks are processes. A launcher may then show each process a single GPU, its own.
  bool processes = false;
};

/// Opens a device other than the processor. Throws Error if this build does not support the device,
/// or if there is no such device for each of the ranks. `setting` is the option by which the user
/// chose the device. The error ends with the advice to choose another one there.
std::unique_ptr<Accelerator> open_accelerator(Device device, std::string_view setting = "--device",
                                              const LocalRank& rank = {});

}  // namespace tessera
