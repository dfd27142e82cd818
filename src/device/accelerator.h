#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "device/stream.h"
#include "device/wait_looks.h"

namespace tessera {

/// Memory that is freed when it is destroyed. It begins as zeros.
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
  /// Returns the bytes of its memory that are free.
  virtual int64_t free_bytes() const = 0;

  /// Allocates memory of the device. Throws Error, which names the free bytes, if there is not
  /// enough.
  virtual std::unique_ptr<DeviceMemory> allocate(int64_t bytes) = 0;
  /// Allocates memory of the host that streams can copy from and to.
  virtual std::unique_ptr<DeviceMemory> allocate_host(int64_t bytes) = 0;

  virtual std::shared_ptr<Stream> make_stream(Priority priority) = 0;
  std::shared_ptr<Stream> make_stream() { return make_stream(Priority::normal); }
  virtual std::unique_ptr<Event> make_event() = 0;

  /// Waits until all streams have done their work. Throws Error if some of it failed.
  virtual void synchronize() = 0;
  /// Returns the looks of this device: checks that the host makes while it waits for the device.
  /// The emulated device makes none, because its work always ends.
  WaitLooks& looks() { return *looks_; }
  /// Copy between the host and the device's memory. They call synchronize() first, and return when
  /// the copy is done. They are for work outside of training steps: initial weights, checkpoints,
  /// tests.
  virtual void upload(std::span<const std::byte> from, void* to) = 0;
  virtual void readback(const void* from, std::span<std::byte> to) = 0;

 protected:
  std::shared_ptr<WaitLooks> shared_looks() const { return looks_; }

 private:
  std::shared_ptr<WaitLooks> looks_ = std::make_shared<WaitLooks>();
};

/// The rank that opens a device, among the ranks of a machine. Each rank has a GPU of its own.
struct LocalRank {
  int rank = 0;
  int ranks = 1;
  /// True if the ranks are processes. A launcher may then show each of them one GPU alone.
  bool processes = false;
};

/// Opens a device other than the processor. Throws Error if this build has no support for it, or if
/// there is no such device for each of the ranks. `setting` is the setting by which the user chose
/// the device; the error ends with it.
std::unique_ptr<Accelerator> open_accelerator(Device device, std::string_view setting = "--device",
                                              const LocalRank& rank = {});

}  // namespace tessera
