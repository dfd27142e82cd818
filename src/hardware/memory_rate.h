#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/words.h"

namespace tessera {

/// Loops over arrays of f64: three of McCalpin's STREAM, and one in place, as optimizers run.
enum class MemoryKernel {
  copy,    ///< a = b: 16 bytes per element
  scale,   ///< a = s b: 16 bytes per element
  triad,   ///< a = b + s c: 24 bytes per element
  update,  ///< a = a + s b: 24 bytes per element
};
template <>
inline constexpr std::array<std::string_view, 4> kWordsOf<MemoryKernel>{"copy", "scale", "triad",
                                                                        "update"};

/// The bytes per second that a loop reads and writes. Each element counts once when it is read and
/// once when it is written. Stores are ordinary ones, so caches fetch a line before it is
/// overwritten. These fetches are not counted, so main memory moves up to half as much again. The
/// loop `update` has no uncounted fetches, because it reads what it overwrites.
struct MemoryRate {
  MemoryKernel kernel = MemoryKernel::copy;
  int64_t bytes = 0;  ///< requested bytes of all arrays of all threads together
  double best = 0;    ///< bytes per second of the fastest run
  double median = 0;  ///< bytes per second of the median run

  bool operator==(const MemoryRate&) const = default;
};

/// One pass of a loop, with the part of each array that a thread works on.
struct MemoryPass {
  MemoryKernel kernel = MemoryKernel::copy;
  int threads = 1;
  int64_t elements = 1;  ///< of each array, per thread

  /// Returns the bytes that a pass of all threads reads and writes.
  int64_t bytes() const;
  /// Returns the bytes per second of `passes` passes that took `seconds` seconds.
  double rate(int64_t passes, double seconds) const;
};

/// Returns the pass over arrays of `bytes` bytes together. Every thread has the same number of
/// whole elements, at least one.
MemoryPass memory_pass(MemoryKernel kernel, int64_t bytes, int threads);

/// Returns a function that runs a loop for a millisecond or more and returns its rate, in bytes per
/// second. The arrays take `bytes` bytes together and are shared equally by the threads. Each
/// thread works on its own part again and again. The rate counts the whole elements of
/// memory_pass(), so it is right if `bytes` had to be rounded.
std::function<double()> memory_loop(MemoryKernel kernel, int64_t bytes, int threads);

/// Measures a memory_loop() for about `seconds` seconds.
MemoryRate measure_memory(MemoryKernel kernel, int64_t bytes, int threads, double seconds);

/// Returns 16 KiB per thread times 1, 2, 4 and so on. The last one is at least 256 MiB and at least
/// four times the last-level caches (0 if unknown). Sizes above `max_bytes` are left out.
std::vector<int64_t> memory_sweep_sizes(int64_t last_level_cache, int threads, int64_t max_bytes);

/// Throws Error unless each size is between one byte and half of `memory_bytes`.
void require_memory(std::span<const int64_t> sizes, int64_t memory_bytes);

/// Measures every loop over working sets of these sizes, in bytes (see measure_memory()), for about
/// `seconds` seconds each. Binds each thread to a core if BoundTeam can. Calls `progress` before
/// each loop with what is measured next. Throws Error if an InterruptGuard has caught a
/// signal.
std::vector<MemoryRate> measure_memory_sweep(
    std::span<const int64_t> sizes, int threads, double seconds,
    const std::function<void(const std::string& what)>& progress);

}  // namespace tessera
