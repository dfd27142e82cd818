#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "device/grid.h"

namespace tessera::emulation {

/// The order in which the blocks of a grid run, and in which the threads of a block that may run
/// are resumed. A kernel that lacks a barrier gives results that depend on the order.
enum class Order { forward, backward, shuffled };

/// The options of an emulated device.
struct Options {
  Order order = Order::forward;
  uint64_t seed = 0;  ///< of Order::shuffled
};

class Machine;

/// An emulator that runs kernels on the processor. Each thread of a block is a fiber: a stack that
/// the processor's thread switches to. A fiber runs until it waits for others. The blocks run one
/// after the other, on the thread that calls run(). To the thread sanitizer a fiber is a thread.
class Emulator {
 public:
  explicit Emulator(const Options& options = {});
  ~Emulator();
  Emulator(const Emulator&) = delete;
  Emulator& operator=(const Emulator&) = delete;

  /// Calls `kernel` once for each thread of the grid. `lanes` is the number of threads of a warp. A
  /// block must be made of whole warps and have at most 1024 threads. Throws the first error of the
  /// kernel; later blocks do not run. Throws Error if threads wait for others that never arrive,
  /// because a barrier or a shuffle is in divergent code. The message names the block and counts
  /// the threads that wait for the block and for their warp.
  void run(const Grid& grid, int lanes, const std::function<void()>& kernel);

 private:
  std::unique_ptr<Machine> machine_;
};

// The functions that kernels call. They may be called only within Emulator::run().

/// An index or a size in up to three dims, as CUDA's dim3. Grids here have two dims.
struct Dim3 {
  unsigned x = 0, y = 0, z = 0;
};
Dim3 thread_index();
Dim3 block_index();
Dim3 block_size();
Dim3 grid_size();

/// Waits for all threads of the block, or of the warp, and orders their accesses to memory.
void wait_for_block();
void wait_for_warp();

/// Gives a value to the warp and returns the value that lane `from` gives. All lanes of the warp
/// must call it. As on a GPU, it does not order their accesses to memory.
uint64_t exchange(uint64_t value, int from);

/// Returns a bit for each lane of the warp, set if its `value` is true. All lanes must call it.
uint64_t ballot(bool value);

/// Returns the index of the calling thread within its warp.
int lane();

/// Returns the block's dynamic shared memory, aligned to 16 bytes.
void* dynamic_shared();

}  // namespace tessera::emulation
