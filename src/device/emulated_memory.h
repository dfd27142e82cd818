#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "device/accelerator.h"

namespace tessera {

/// Keeps the host away from the emulated device's memory while no work of the device runs: it may
/// then be neither read nor written.
class Fence {
 public:
  void add(void* address, int64_t bytes);
  void remove(void* address);
  /// Opens the memory; it closes when it was closed as often.
  void open();
  void close();

 private:
  struct Block {
    void* address;
    int64_t bytes;
  };

  void protect(const Block& block) const;
  void protect_all() const;

  std::mutex mutex_;
  std::vector<Block> blocks_;
  int opened_ = 0;
};

/// Opens the fence while it lives.
class OpenFence {
 public:
  explicit OpenFence(Fence& fence) : fence_(fence) { fence_.open(); }
  ~OpenFence() { fence_.close(); }
  OpenFence(const OpenFence&) = delete;
  OpenFence& operator=(const OpenFence&) = delete;

 private:
  Fence& fence_;
};

/// Memory behind a fence, or the host's own if `fence` is null. Throws Error if the system does not
/// give the addresses.
std::unique_ptr<DeviceMemory> emulated_memory(int64_t bytes, std::shared_ptr<Fence> fence);

}  // namespace tessera
