#include "hardware/measure_ceilings.h"

#include <fmt/format.h>

#include "base/physical_memory.h"
#include "base/progress.h"
#include "base/threads.h"
#include "hardware/hardware_report.h"
#include "hardware/memory_sweep.h"

namespace tessera {
namespace {

std::vector<DType> types_of_processor(const Logger& logger) {
  std::vector<DType> dtypes;
  for (const DType dtype : {DType::bf16, DType::f32}) {
    if (has_gemm(dtype)) {
      dtypes.push_back(dtype);
    } else {
      logger.info("this processor has no {} matrix product; it is left out", dtype_name(dtype));
    }
  }
  return dtypes;
}

std::vector<GemmRate> measure(const GemmSweep& sweep, int threads, const Logger& logger) {
  Progress progress;
  const Stopwatch watch;
  GemmSweepResult result =
      measure_gemm_sweep(sweep, threads, [&](const std::string& what, size_t done, size_t all) {
        const double fraction = static_cast<double>(done) / static_cast<double>(all);
        progress.show(Progress::bar(fraction, watch.seconds(), what), done == all);
      });
  for (const GemmRate& product : result.left_out) {
    logger.info("left out, since a run would take longer than --seconds allows: {}",
                describe(product));
  }
  return result.rates;
}

std::vector<MemoryRate> measure(const MemorySweep& sweep, int threads) {
  Progress progress;
  std::vector<MemoryRate> rates = measure_memory_sweep(
      sweep.bytes, threads, sweep.seconds, [&](const std::string& what) { progress.show(what); });
  progress.clear();
  return rates;
}

}  // namespace

MeasuredCeilings measure_ceilings(const CeilingOptions& options, const Logger& logger) {
  MeasuredCeilings result{.hardware = {this_processor(threads_or_all(options.threads)), {}, {}},
                          .gemm = options.gemm};
  const Processor& processor = result.hardware.processor;
  std::optional<MemorySweep> memory = options.memory;
  // Everything is checked before anything is measured.
  if (result.gemm) {
    if (result.gemm->dtypes.empty()) result.gemm->dtypes = types_of_processor(logger);
    require_memory(*result.gemm);
  }
  if (memory) {
    require_memory(memory->bytes);
    if (memory->bytes.empty()) {
      memory->bytes =
          memory_sweep_sizes(processor.last_level_cache, processor.threads, physical_memory() / 2);
    }
  }
  if (result.gemm) result.hardware.gemms = measure(*result.gemm, processor.threads, logger);
  if (memory) result.hardware.memory = measure(*memory, processor.threads);
  return result;
}

std::string MeasuredCeilings::text() const {
  std::string text = describe(hardware.processor) + "\n";
  if (gemm) text += "\n" + gemm_text(hardware, *gemm);
  if (!hardware.memory.empty()) text += "\n" + memory_text(hardware);
  return text;
}

std::string MeasuredCeilings::picture() const {
  return gemm ? gemm_picture(hardware, *gemm) : memory_picture(hardware);
}

}  // namespace tessera
