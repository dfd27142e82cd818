#include "hardware/memory_rate.h"

#include <algorithm>
#include <bit>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/affinity.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/parallel.h"
#include "base/progress.h"
#include "base/quantile.h"
#include "base/text.h"
#include "tensor/tensor.h"

namespace tessera {
namespace {

// Every thread has its own part of each array. A pass is one loop over all parts, and a run is as
// many passes as take a millisecond or more.

constexpr auto kElementBytes = static_cast<int64_t>(sizeof(double));

int64_t array_count(MemoryKernel kernel) { return kernel == MemoryKernel::triad ? 3 : 2; }

/// Returns the number of arrays read plus the number of arrays written.
int64_t access_count(MemoryKernel kernel) {
  return array_count(kernel) + (kernel == MemoryKernel::update ? 1 : 0);
}

/// The scalars of a pass. Their values are known only at run time, because with constants the
/// compiler would replace the copy by memcpy(), which may store past the caches.
struct Factors {
  double scale = 3;
  uint64_t zero_bits = 0;
};

/// One thread's part of the arrays, `count` elements each. Only the triad reads `second`.
struct Part {
  double* out;
  const double* first;
  const double* second;
  int64_t count;
};

/// Makes a pass over one part. MemoryKernel has the formulas of the loops.
void run_pass(MemoryKernel kernel, const Part& part, const Factors& factors) {
  double* __restrict out = part.out;
  const double* __restrict first = part.first;
  const double* __restrict second = part.second;
  switch (kernel) {
    case MemoryKernel::copy:
      for (int64_t i = 0; i < part.count; ++i) {
        out[i] = std::bit_cast<double>(std::bit_cast<uint64_t>(first[i]) ^ factors.zero_bits);
      }
      break;
    case MemoryKernel::scale:
      for (int64_t i = 0; i < part.count; ++i) out[i] = factors.scale * first[i];
      break;
    case MemoryKernel::triad:
      for (int64_t i = 0; i < part.count; ++i) out[i] = first[i] + factors.scale * second[i];
      break;
    case MemoryKernel::update:
      for (int64_t i = 0; i < part.count; ++i) out[i] += factors.scale * first[i];
      break;
  }
}

/// Returns the seconds of `passes` passes of all threads, each over its own part.
double timed_passes(MemoryKernel kernel, std::span<const Part> parts, const Factors& factors,
                    int64_t passes) {
  const Stopwatch watch;
  parallel_ranges(static_cast<int>(parts.size()), static_cast<int64_t>(parts.size()), 1,
                  [&](int64_t begin, int64_t end, int) {
                    for (int64_t i = 0; i < passes; ++i) {
                      for (int64_t part = begin; part < end; ++part) {
                        run_pass(kernel, parts[static_cast<size_t>(part)], factors);
                      }
                      // The compiler must not drop a pass whose results the next one overwrites.
                      asm volatile("" ::: "memory");
                    }
                  });
  return watch.seconds();
}

}  // namespace

int64_t MemoryPass::bytes() const {
  return access_count(kernel) * kElementBytes * threads * elements;
}

double MemoryPass::rate(int64_t passes, double seconds) const {
  return static_cast<double>(bytes()) * static_cast<double>(passes) / seconds;
}

MemoryPass memory_pass(MemoryKernel kernel, int64_t bytes, int threads) {
  const int64_t elements = bytes / (array_count(kernel) * kElementBytes * threads);
  return {.kernel = kernel, .threads = threads, .elements = std::max<int64_t>(1, elements)};
}

std::function<double()> memory_loop(MemoryKernel kernel, int64_t bytes, int threads) {
  constexpr double kLeastRun = 1e-3;  // seconds, much longer than starting the threads
  const MemoryPass work = memory_pass(kernel, bytes, threads);
  const int64_t count = work.elements;
  std::vector<Tensor> arrays;
  for (int64_t i = 0; i < array_count(kernel); ++i) {
    arrays.emplace_back(Shape{threads, count}, DType::f64);
  }
  std::vector<Part> parts(static_cast<size_t>(threads));
  // Each thread fills its own part, so the system puts it into memory near that thread.
  parallel_ranges(threads, threads, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t thread = begin; thread < end; ++thread) {
      const auto own = [&](const Tensor& array) { return array.data<double>() + thread * count; };
      for (const Tensor& array : arrays) std::fill_n(own(array), count, 1.25);
      parts[static_cast<size_t>(thread)] = {own(arrays[0]), own(arrays[1]), own(arrays.back()),
                                            count};
    }
  });
  // The compiler does not know the values that are read from a volatile object.
  const volatile Factors hidden;
  const Factors factors{hidden.scale, hidden.zero_bits};
  int64_t passes = 1;
  while (timed_passes(kernel, parts, factors, passes) < kLeastRun) passes *= 2;
  return [=, owner = std::move(arrays)] {
    return work.rate(passes, timed_passes(kernel, parts, factors, passes));
  };
}

MemoryRate measure_memory(MemoryKernel kernel, int64_t bytes, int threads, double seconds) {
  constexpr size_t kLeastRuns = 5;
  const std::function<double()> run = memory_loop(kernel, bytes, threads);
  std::vector<double> rates;
  const Stopwatch total;
  while (rates.size() < kLeastRuns || total.seconds() < seconds) rates.push_back(run());
  return {.kernel = kernel,
          .bytes = bytes,
          .best = *std::max_element(rates.begin(), rates.end()),
          .median = quantile(rates, 0.5)};
}

std::vector<int64_t> memory_sweep_sizes(int64_t last_level_cache, int threads, int64_t max_bytes) {
  const int64_t largest = std::max<int64_t>(4 * last_level_cache, int64_t{256} << 20);
  std::vector<int64_t> sizes;
  for (int64_t bytes = int64_t{threads} * (16 << 10); bytes <= max_bytes; bytes *= 2) {
    sizes.push_back(bytes);
    if (bytes >= largest) break;
  }
  return sizes;
}

void require_memory(std::span<const int64_t> sizes, int64_t memory_bytes) {
  for (const int64_t size : sizes) {
    if (size >= 1 && size <= memory_bytes / 2) continue;
    throw Error("a working set is {}; give sizes from 1 byte to half of the {} of memory",
                format_bytes(size), format_bytes(memory_bytes));
  }
}

std::vector<MemoryRate> measure_memory_sweep(
    std::span<const int64_t> sizes, int threads, double seconds,
    const std::function<void(const std::string& what)>& progress) {
  const BoundTeam team(threads);
  std::vector<MemoryRate> rates;
  for (const int64_t size : sizes) {
    for (size_t kernel = 0; kernel < kWordsOf<MemoryKernel>.size(); ++kernel) {
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
