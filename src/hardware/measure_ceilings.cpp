#include "hardware/measure_ceilings.h"

#include <functional>

#include <fmt/format.h>

#include "base/interrupt.h"
#include "base/progress.h"
#include "base/text.h"
#include "base/threads.h"
#include "base/usable_memory.h"
#include "hardware/device_rate.h"
#include "hardware/hardware_report.h"
#include "ops/host_target.h"

namespace tessera {
namespace {

// measure_ceilings() measures the processor, and measure_on_device() a device. Both fill in what
// the user left open, check that the sizes fit, and measure products before memory.

/// Returns those of bf16 and f32 for which can_multiply() is true. Logs which one `machine` lacks.
std::vector<DType> types_of(const std::string& machine,
                            const std::function<bool(DType)>& can_multiply, const Logger& logger) {
  std::vector<DType> dtypes;
  for (const DType dtype : {DType::bf16, DType::f32}) {
    if (can_multiply(dtype)) {
      dtypes.push_back(dtype);
    } else {
      logger.info("{} has no {} matrix product; it is left out", machine, dtype_name(dtype));
    }
  }
  return dtypes;
}

/// Returns the rates of `measure`, which gets a line of progress. Logs the products left out.
std::vector<GemmRate> rates_with_progress(
    const std::function<GemmSweepResult(const SweepProgress&)>& measure, const Logger& logger) {
  Progress progress;
  const Stopwatch watch;
  GemmSweepResult result = measure([&](const std::string& what, size_t done, size_t all) {
    const double fraction = static_cast<double>(done) / static_cast<double>(all);
    progress.show(Progress::bar(fraction, watch.seconds(), what), done == all);
  });
  for (const GemmRate& product : result.left_out) {
    logger.info("left out, since a run would take longer than --seconds allows: {}",
                describe(product));
  }
  return result.rates;
}

std::vector<MemoryRate> measure_loops(const MemorySweep& sweep, int threads) {
  Progress progress;
  std::vector<MemoryRate> rates = measure_memory_sweep(
      sweep.bytes, threads, sweep.seconds, [&](const std::string& what) { progress.show(what); });
  progress.clear();
  return rates;
}

std::vector<MemoryRate> measure_copies(const MemorySweep& sweep, DeviceRates& rates) {
  Progress progress;
  std::vector<MemoryRate> result;
  for (const int64_t bytes : sweep.bytes) {
    require_no_interrupt();
    progress.show(fmt::format("copy of {}", format_bytes(bytes)));
    result.push_back(rates.measure_copy(bytes, sweep.seconds));
  }
  require_no_interrupt();
  progress.clear();
  return result;
}

/// Measures the products of `result.gemm` and the copies of `memory`, if given, on a device.
void measure_on_device(MeasuredCeilings& result, std::optional<MemorySweep> memory, Device device,
                       const Logger& logger) {
  Target target = host_target(result.hardware.processor.threads);
  target.device = device;
  Runtime runtime(target);
  const Accelerator& accelerator = *runtime.accelerator();
  result.hardware.accelerator = facts_of(accelerator);
  DeviceRates rates(runtime);
  if (memory) require_memory(memory->bytes, accelerator.free_bytes());
  if (result.gemm) {
    GemmSweep& sweep = *result.gemm;
    if (sweep.dtypes.empty()) {
      const auto can_multiply = [&](DType dtype) { return rates.has_gemm(dtype); };
      sweep.dtypes = types_of(accelerator.name(), can_multiply, logger);
    }
    require_memory(sweep, accelerator.free_bytes());
    const GemmMachine machine{
        .squares = [&](DType dtype) { return rates.measure_squares(dtype); },
        .product = [&](const GemmRate& product,
                       const GemmBudget& budget) { return rates.measure_gemm(product, budget); }};
    result.hardware.gemms = rates_with_progress(
        [&](const SweepProgress& progress) { return measure_gemm_sweep(sweep, machine, progress); },
        logger);
  }
  if (!memory) return;
  if (memory->bytes.empty()) memory->bytes = device_copy_sizes(device, accelerator.free_bytes());
  result.hardware.memory = measure_copies(*memory, rates);
}

}  // namespace

MeasuredCeilings measure_ceilings(const CeilingOptions& options, const Logger& logger) {
  MeasuredCeilings result{
      .hardware = {this_processor(threads_or_all(options.threads, "--threads")), {}, {}},
      .gemm = options.gemm};
  if (options.device != Device::cpu) {
    measure_on_device(result, options.memory, options.device, logger);
    return result;
  }
  const Processor& processor = result.hardware.processor;
  std::optional<MemorySweep> memory = options.memory;
  // Everything is checked before anything is measured.
  if (result.gemm) {
    if (result.gemm->dtypes.empty()) {
      result.gemm->dtypes = types_of("this processor", has_gemm, logger);
    }
    require_memory(*result.gemm, usable_memory().bytes);
  }
  if (memory) {
    require_memory(memory->bytes, usable_memory().bytes);
    if (memory->bytes.empty()) {
      memory->bytes = memory_sweep_sizes(processor.last_level_cache, processor.threads,
                                         usable_memory().bytes / 2);
    }
  }
  if (result.gemm) {
    result.hardware.gemms = rates_with_progress(
        [&](const SweepProgress& progress) {
          return measure_gemm_sweep(*result.gemm, processor.threads, progress);
        },
        logger);
  }
  if (memory) result.hardware.memory = measure_loops(*memory, processor.threads);
  return result;
}

std::string MeasuredCeilings::text() const {
  std::string text = describe(hardware.processor) + "\n";
  if (hardware.accelerator) text = describe(*hardware.accelerator) + ", beside " + text;
  if (hardware.accelerator && hardware.accelerator->device == Device::emulated) {
    text += fmt::format("{}\n", kEmulatedFigures);
  }
  if (gemm) text += fmt::format("\n{}", gemm_text(hardware, *gemm));
  if (!hardware.memory.empty()) text += fmt::format("\n{}", memory_text(hardware));
  return text;
}

std::string MeasuredCeilings::picture() const {
  return gemm ? gemm_picture(hardware, *gemm) : memory_picture(hardware);
}

}  // namespace tessera
