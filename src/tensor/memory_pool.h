#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tensor/memory_layout.h"

namespace tessera {

/// A block of a pool's memory, given back when the last reference to it goes.
class Buffer {
 public:
  Buffer(std::shared_ptr<class PoolStorage> pool, int64_t offset, int64_t bytes);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  std::byte* data() const;
  int64_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<class PoolStorage> pool_;
  int64_t offset_;
  int64_t bytes_;
};

/// Bytes of memory that the machine has.
int64_t physical_memory();

/// Memory of one rank on one device: a reserved range of addresses, of which only what is touched
/// costs anything, divided by a MemoryLayout. Steady-state steps reuse the same pages. Blocks are
/// aligned to 64 bytes and their contents are undefined. Not for use from several threads at once.
class MemoryPool {
 public:
  /// Reserves `capacity` bytes of addresses, such as a plan's extent. Without a plan (0) it is
  /// twice the machine's physical memory, so that holes between blocks cannot matter, but no more
  /// than half of what the user's limit on addresses leaves: files and libraries take theirs.
  explicit MemoryPool(int64_t capacity = 0);

  /// Throws Error when the capacity is exhausted, saying how much was asked for and is in use.
  std::shared_ptr<Buffer> allocate(int64_t bytes);

  int64_t in_use() const;
  int64_t peak_in_use() const;
  int64_t extent() const;
  void reset_peak();

 private:
  std::shared_ptr<class PoolStorage> storage_;
};

}  // namespace tessera
