#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "device/grid.h"

namespace tessera::emulation {

/// The order in which the threads that may run take turns, and the blocks. A kernel that lacks a
/// barrier gives results that depend on it.
enum class Order { forward, backward, shuffled };

/// How a device is emulated.
struct Options {
  Order order = Order::forward;
  uint64_t seed = 0;  ///< of Order::shuffled
};

class Machine;

/// Runs kernels on the processor. Each thread of a block is a fiber; the blocks run one after the
/// other, on the thread that calls run(). The thread sanitizer takes each fiber for a thread.
class Emulator {
 public:
  explicit Emulator(const Options& options = {});
  ~Emulator();
  Emulator(const Emulator&) = delete;
  Emulator& operator=(const Emulator&) = delete;

  /// Calls `kernel` once for each thread of the grid. `lanes` is the number of threads of a warp.
  /// Throws Error if a block's size is not a number of whole warps or over 1024, and if threads
  /// wait for others that do not come: a barrier or a shuffle in divergent code. The message has
  /// the block and the number of threads that wait at each kind.
  void run(const Grid& grid, int lanes, const std::function<void()>& kernel);

 private:
  std::unique_ptr<Machine> machine_;
};

// What a kernel sees. These may be called within Emulator::run() only.

struct Index {
  unsigned x = 0, y = 0, z = 0;
};
Index thread_index();
Index block_index();
Index block_size();
Index grid_size();

/// Waits for all threads of the block, or of the warp.
void wait_for_block();
void wait_for_warp();

/// Gives a value to the warp and returns the one that lane `from` gives. All lanes of the warp must
/// call it. As on a GPU, it does not order their accesses to memory.
uint64_t exchange(uint64_t value, int from);

/// The bits of the lanes of the warp whose `value` is true. All lanes must call it.
uint64_t ballot(bool value);

/// The number of a thread within its warp.
int lane();

/// The block's dynamic shared memory, aligned to 16 bytes.
void* dynamic_shared();

}  // namespace tessera::emulation
