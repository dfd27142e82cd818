#include "hardware/memory_sweep.h"

#include <fmt/format.h>

#include "base/affinity.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/text.h"

namespace tessera {

void require_memory(std::span<const int64_t> sizes, int64_t memory) {
  for (const int64_t size : sizes) {
    if (size >= 1 && size <= memory / 2) continue;
    throw Error("a working set of {}; give sizes from 1 byte to half of the {} that are there",
                format_bytes(size), format_bytes(memory));
  }
}

std::vector<MemoryRate> measure_memory_sweep(
    std::span<const int64_t> sizes, int threads, double seconds,
    const std::function<void(const std::string& what)>& progress) {
  const BoundTeam team(threads);
  std::vector<MemoryRate> rates;
  for (const int64_t size : sizes) {
    for (size_t kernel = 0; kernel < kWords<MemoryKernel>.size(); ++kernel) {
      require_no_interrupt();
      progress(
          fmt::format("{} of {}", word(static_cast<MemoryKernel>(kernel)), format_bytes(size)));
      rates.push_back(measure_memory(static_cast<MemoryKernel>(kernel), size, threads, seconds));
    }
  }
  require_no_interrupt();
  return rates;
}

}  // namespace tessera
