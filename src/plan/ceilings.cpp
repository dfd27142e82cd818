#include "plan/ceilings.h"

#include "base/error.h"
#include "hardware/gemm_rate.h"
#include "hardware/hardware_file.h"
#include "model/model.h"

namespace tessera {
namespace {

void require_fit(const Hardware& hardware, const TraceOrigin& origin, const fs::path& path) {
  const Processor& measured = hardware.processor;
  if (measured.name == origin.processor && measured.threads == origin.threads) return;
  throw Error(
      "{} was measured on {} with {} threads, the trace comes from {} with {} threads; give a file "
      "that `tessera bench all --threads {}` wrote there",
      path.string(), measured.name, measured.threads, origin.processor, origin.threads,
      origin.threads);
}

void take_hardware(Ceilings& ceilings, const fs::path& path, const TraceOrigin& origin) {
  const Hardware hardware = read_hardware(path);
  require_fit(hardware, origin, path);
  if (!hardware.gemms.empty()) {
    ceilings.gemm_flops = hardware.gemm_peak(compute_dtype(origin.precision));
    ceilings.gemm_source = path.string();
  }
  if (!hardware.memory.empty()) {
    ceilings.memory_bytes = hardware.memory_bandwidth(MemoryKernel::triad);
    ceilings.memory_source = path.string();
  }
}

}  // namespace

Ceilings find_ceilings(const TraceOrigin& origin, const CeilingSources& sources) {
  Ceilings ceilings{.gemm_flops = origin.gemm_peak, .gemm_source = "the run's"};
  if (!sources.hardware.empty()) {
    take_hardware(ceilings, sources.hardware, origin);
  } else if (sources.measure && sources.gemm_flops == 0) {
    const double now = measure_gemm_peak(origin.threads, compute_dtype(origin.precision));
    if (now > ceilings.gemm_flops) {
      ceilings.gemm_flops = now;
      ceilings.gemm_source = "measured now, above the run's";
    }
  }
  if (sources.gemm_flops > 0) {
    ceilings.gemm_flops = sources.gemm_flops;
    ceilings.gemm_source = "--gemm-peak";
  }
  if (sources.memory_bytes > 0) {
    ceilings.memory_bytes = sources.memory_bytes;
    ceilings.memory_source = "--memory-bandwidth";
  }
  return ceilings;
}

}  // namespace tessera
