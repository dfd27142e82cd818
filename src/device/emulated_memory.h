#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "device/accelerator.h"

namespace tessera {

/// A fence around the emulated device's memory. While it is closed, the memory can be neither read
/// nor written: a use by the host ends in a segmentation fault, as on a GPU. Streams open it while
/// they work, and upload() and readback() while they copy. Several threads may call it at once.
class Fence {
 public:
  /// Puts memory behind the fence. remove() must be called before the memory is freed.
  void add(void* address, int64_t bytes);
  void remove(void* address);
  /// Opens the fence. It stays open until close() has been called as often as open().
  void open();
  void close();

 private:
  struct Block {
    void* address;
    int64_t bytes;
  };

  /// Allows or forbids access to a block, as the fence is open or closed.
  void protect(const Block& block) const;
  void protect_all() const;

  std::mutex mutex_;  // guards the members below
  std::vector<Block> blocks_;
  int open_calls_ = 0;  // the number of calls of open() that no close() has followed yet
};

/// A guard that keeps the fence open until it is destroyed.
class OpenFence {
 public:
  explicit OpenFence(Fence& fence) : fence_(fence) { fence_.open(); }
  ~OpenFence() { fence_.close(); }
  OpenFence(const OpenFence&) = delete;
  OpenFence& operator=(const OpenFence&) = delete;

 private:
  Fence& fence_;
};

/// Allocates memory behind a fence, or memory of the host if `fence` is null. The memory keeps
/// `reservation` until it is destroyed. Throws Error if the system has no addresses for it.
std::unique_ptr<DeviceMemory> emulated_memory(int64_t bytes, std::shared_ptr<Fence> fence,
                                              std::shared_ptr<void> reservation = {});

}  // namespace tessera
