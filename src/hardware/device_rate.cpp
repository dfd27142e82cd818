#include "hardware/device_rate.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/quantile.h"
#include "hardware/random_fill.h"
#include "ops/gemm/device_gemm.h"

namespace tessera {
namespace {

/// Returns memory of the device filled with random normal numbers.
std::unique_ptr<DeviceMemory> normal_memory(Accelerator& accelerator, const Shape& shape,
                                            DType dtype, const char* name) {
  const Tensor host(shape, dtype);
  fill_normal(host, name, 1, 1);
  auto memory = accelerator.allocate(host.bytes());
  accelerator.upload({host.raw(), static_cast<size_t>(host.bytes())}, memory->address());
  return memory;
}

/// Returns the sides of the squares that an accelerator's peak is read from.
std::vector<int64_t> peak_sides(Device device) {
  if (device == Device::emulated) return {64, 128};
  return {2048, 4096, 8192};
}

}  // namespace

DeviceTimer::DeviceTimer(Accelerator& accelerator)
    : accelerator_(accelerator), stream_(accelerator.make_stream()), events_(accelerator) {}

double DeviceTimer::seconds(const std::function<void(Stream&)>& work, int64_t runs) {
  events_.begin(*stream_);
  for (int64_t i = 0; i < runs; ++i) work(*stream_);
  events_.end(*stream_);
  stream_->synchronize();
  return events_.seconds();
}

std::vector<double> DeviceTimer::samples(const std::function<void(Stream&)>& work,
                                         const GemmBudget& budget) {
  constexpr double kLeastSeconds = 1e-3;  // of a sample, far above the time of a launch
  constexpr int64_t kMostRuns = int64_t{1} << 14;
  seconds(work, 1);
  int64_t runs = 1;
  double sample_seconds = seconds(work, runs);
  double total_seconds = 0;
  while (sample_seconds < kLeastSeconds && runs < kMostRuns) {
    total_seconds += sample_seconds;
    sample_seconds = seconds(work, runs *= 2);
  }
  std::vector<double> times;
  while (true) {
    times.push_back(sample_seconds / static_cast<double>(runs));
    total_seconds += sample_seconds;
    const bool enough =
        std::ssize(times) >= budget.least_samples && total_seconds >= budget.seconds;
    if (enough || InterruptGuard::requested()) return times;
    sample_seconds = seconds(work, runs);
  }
}

DeviceRates::DeviceRates(Runtime& runtime) : runtime_(runtime), timer_(*runtime.accelerator()) {}

GemmRate DeviceRates::measure_gemm(const GemmRate& product, const GemmBudget& budget) {
  Accelerator& accelerator = timer_.accelerator();
  const GemmShape shape = gemm_shape(product, runtime_.threads());
  const auto a = normal_memory(accelerator, {product.m, product.k}, shape.input, "a");
  const auto b = normal_memory(accelerator, {product.k, product.n}, shape.input, "b");
  const auto c = normal_memory(accelerator, {product.m, product.n}, shape.output, "c");
  const int64_t bytes = device_gemm_workspace_bytes(runtime_.target(), shape);
  const auto workspace = accelerator.allocate(std::max<int64_t>(bytes, 1));
  return rate_of_samples(
      product, timer_.samples(
                   [&](Stream& stream) {
                     auto* const scratch = static_cast<std::byte*>(workspace->address());
                     device_gemm({runtime_, {}, {}, {scratch, static_cast<size_t>(bytes)}, &stream},
                                 shape, a->address(), b->address(), c->address(), scratch);
                   },
                   budget));
}

std::vector<GemmRate> DeviceRates::measure_squares(DType dtype) {
  std::vector<GemmRate> rates;
  for (const int64_t side : peak_sides(timer_.accelerator().device())) {
    const GemmRate square{.dtype = dtype, .m = side, .n = side, .k = side};
    rates.push_back(measure_gemm(square, {.seconds = 0.2, .least_samples = 5}));
  }
  return rates;
}

bool DeviceRates::has_gemm(DType dtype) {
  try {
    measure_gemm({.dtype = dtype, .m = 64, .n = 64, .k = 64}, {.seconds = 0, .least_samples = 1});
  } catch (const NoProductError&) {
    return false;
  }
  return true;
}

MemoryRate DeviceRates::measure_copy(int64_t bytes, double seconds) {
  Accelerator& accelerator = timer_.accelerator();
  const int64_t half_bytes = std::max<int64_t>(bytes / 2, 1);
  const int64_t floats = std::max<int64_t>(half_bytes / 4, 1);
  const int64_t copied_bytes = 4 * floats;
  const auto from = normal_memory(accelerator, {floats}, DType::f32, "copied");
  const auto to = accelerator.allocate(half_bytes + 3);  // 4 bytes or more: room for a float
  const std::vector<double> samples = timer_.samples(
      [&](Stream& stream) { stream.copy(to->address(), from->address(), copied_bytes); },
      {.seconds = seconds, .least_samples = 5});
  const auto accessed_bytes = 2 * static_cast<double>(copied_bytes);
  return {.kernel = MemoryKernel::copy,
          .bytes = bytes,
          .best = accessed_bytes / std::ranges::min(samples),
          .median = accessed_bytes / quantile(samples, 0.5)};
}

std::vector<int64_t> device_copy_sizes(Device device, int64_t free_bytes) {
  const bool emulated = device == Device::emulated;
  const int64_t max_bytes =
      std::min(emulated ? int64_t{1} << 22 : int64_t{1} << 32, free_bytes / 2);
  std::vector<int64_t> sizes;
  for (int64_t bytes = emulated ? 1 << 20 : 1 << 22; bytes <= max_bytes; bytes *= 4) {
    sizes.push_back(bytes);
  }
  if (sizes.empty()) {
    throw Error("the device has {} bytes of memory free, too few to measure", free_bytes);
  }
  return sizes;
}

double measure_gemm_peak(Runtime& runtime, DType dtype) {
  return best_rate(DeviceRates(runtime).measure_squares(dtype));
}

}  // namespace tessera
