#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tessera {

/// The loops of McCalpin's STREAM over arrays of f64.
enum class MemoryKernel {
  copy,   ///< a = b: 16 bytes an element
  scale,  ///< a = s b: 16 bytes an element
  triad,  ///< a = b + s c: 24 bytes an element
};

/// What users call them, in the order of MemoryKernel.
inline constexpr std::array<std::string_view, 3> kMemoryKernels{"copy", "scale", "triad"};
/// The inverse; throws Error naming the known ones.
MemoryKernel memory_kernel_from_name(std::string_view name);

/// The bytes a second that a loop reads and writes. Stores are ordinary ones, and each element
/// counts once for being read and once for being written: what caches fetch of a line before it is
/// overwritten is not counted, so that main memory moves up to half as much again.
struct MemoryRate {
  MemoryKernel kernel = MemoryKernel::copy;
  int64_t bytes = 0;  ///< asked for, of all arrays of all threads together
  double best = 0;    ///< bytes a second, of the fastest run
  double median = 0;  ///< of the median run

  bool operator==(const MemoryRate&) const = default;
};

/// Measures one loop over arrays of that many bytes together, shared equally by the threads, each
/// of which works on its own part again and again, for about so many seconds. The rates are those
/// of what was really moved: whole elements of every array and thread, one at least.
MemoryRate measure_memory(MemoryKernel kernel, int64_t bytes, int threads, double seconds);

/// Powers of two from 16 KiB a thread to at least four times the last-level cache (256 MiB where it
/// is unknown or small).
std::vector<int64_t> memory_sweep_sizes(int64_t last_level_cache, int threads);

}  // namespace tessera
