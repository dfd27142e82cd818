#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tessera {

/// Loops over arrays of f64: three of McCalpin's STREAM, and one in place as optimizers run.
enum class MemoryKernel {
  copy,    ///< a = b: 16 bytes an element
  scale,   ///< a = s b: 16 bytes an element
  triad,   ///< a = b + s c: 24 bytes an element
  update,  ///< a = a + s b: 24 bytes an element
};

/// What users call them, in the order of MemoryKernel.
inline constexpr std::array<std::string_view, 4> kMemoryKernels{"copy", "scale", "triad", "update"};
/// The inverse; throws Error naming the known ones.
MemoryKernel memory_kernel_from_name(std::string_view name);

/// The bytes a second that a loop reads and writes. Stores are ordinary ones, and each element
/// counts once for being read and once for being written: what caches fetch of a line before it is
/// overwritten is not counted, so that main memory moves up to half as much again. Of `update`
/// every byte counts, since it reads what it overwrites.
struct MemoryRate {
  MemoryKernel kernel = MemoryKernel::copy;
  int64_t bytes = 0;  ///< asked for, of all arrays of all threads together
  double best = 0;    ///< bytes a second, of the fastest run
  double median = 0;  ///< of the median run

  bool operator==(const MemoryRate&) const = default;
};

/// One pass of a loop: what of each array a thread works on.
struct MemoryPass {
  MemoryKernel kernel = MemoryKernel::copy;
  int threads = 1;
  int64_t elements = 1;  ///< of each array, a thread

  /// What a pass of all threads reads and writes.
  int64_t bytes() const;
  /// Bytes a second of `passes` passes.
  double rate(int64_t passes, double seconds) const;
};

/// The pass over arrays of that many bytes together: whole elements, equally many a thread, one at
/// least.
MemoryPass memory_pass(MemoryKernel kernel, int64_t bytes, int threads);

/// Measures one loop over arrays of that many bytes together, shared equally by the threads, each
/// of which works on its own part again and again, for about so many seconds. The rates are those
/// of what was really moved (see memory_pass()).
MemoryRate measure_memory(MemoryKernel kernel, int64_t bytes, int threads, double seconds);

/// Powers of two times 16 KiB a thread, up to at least four times the last-level caches (256 MiB
/// where they are unknown or small), those above `most` left out.
std::vector<int64_t> memory_sweep_sizes(int64_t last_level_cache, int threads, int64_t most);

}  // namespace tessera
