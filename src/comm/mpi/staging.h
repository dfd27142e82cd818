#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace tessera {

/// The bytes of memory in which a process stages what others sent until it is summed or copied into
/// the whole. Each group stages as much of what it sends. Larger operands go through it in rounds.
/// The size is about that of a processor's cache, from which sums are taken.
inline constexpr int64_t kStagingBytes = int64_t{2} << 20;

/// The most bytes that a rank gives to all others in the message that compares their calls. Larger
/// calls compare first, and MPI's collectives move their operands. Smaller ones copy their operands
/// twice more.
inline constexpr int64_t kSmallCallBytes = int64_t{8} << 10;

/// Memory that is allocated when it is first used, and then kept.
class StagingMemory {
 public:
  std::byte* bytes(int64_t count) {
    if (count > size_) {
      memory_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(count));
      size_ = count;
    }
    return memory_.get();
  }

 private:
  std::unique_ptr<std::byte[]> memory_;
  int64_t size_ = 0;
};

}  // namespace tessera
