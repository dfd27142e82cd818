#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace tessera {

/// The memory in which a process keeps what others sent until it is summed or put in its place, and
/// once more for what it sends, a group. Larger operands go through it in rounds. It is about what
/// a processor's cache holds, from where sums are taken.
inline constexpr int64_t kStagingBytes = int64_t{2} << 20;

/// What a rank gives to all others at most in the message that compares their calls. Larger calls
/// compare first, and MPI's collectives move their operands. Here they are copied twice more.
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
