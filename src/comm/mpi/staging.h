#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace tessera {

/// The bytes that a process receives from others in one round, and stages until they are summed or
/// copied into the whole. Larger operands go in several rounds. Sums have two rounds under way, and
/// as much memory for bytes to send. A round fits into a processor's cache of about this size.
inline constexpr int64_t kStagingBytes = int64_t{2} << 20;

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
