// Finds the ceilings of an account. Each ceiling comes from the first source that knows it: the
// user's option, the hardware file, and for products the run's own peak, or a new measurement.

#include <algorithm>

#include "base/error.h"
#include "hardware/gemm_rate.h"
#include "hardware/hardware_file.h"
#include "model/model.h"
#include "plan/account/step_account.h"

namespace tessera {
namespace {

/// Returns a name of the file's machine, for errors.
std::string file_machine(const Hardware& hardware) {
  return hardware.accelerator ? hardware.accelerator->name : describe(hardware.processor);
}

void require_accelerator(const Hardware& hardware, const TraceOrigin& origin,
                         const fs::path& path) {
  if (hardware.accelerator && hardware.accelerator->device == origin.device &&
      hardware.accelerator->name == origin.accelerator) {
    return;
  }
  throw Error(
      "{} is about {}, the trace comes from {}; give --hardware a file that `tessera bench all "
      "--device {}` wrote there",
      path.string(), file_machine(hardware), origin.accelerator, word(origin.device));
}

void require_same_origin(const Hardware& hardware, const TraceOrigin& origin,
                         const fs::path& path) {
  if (origin.device != Device::cpu) return require_accelerator(hardware, origin, path);
  const Processor traced = processor_of(origin);
  if (!hardware.accelerator && same_processor(hardware.processor, traced)) return;
  throw Error(
      "{} was measured on {}, the trace comes from {}; give --hardware a file that `tessera bench "
      "all --threads {}` wrote there",
      path.string(), file_machine(hardware), describe(traced), origin.threads);
}

/// Returns the file's peak in the run's precision. Its errors name this command's options.
double file_peak(const Hardware& hardware, Precision precision, const fs::path& path) {
  const DType dtype = compute_dtype(precision);
  const bool known = std::ranges::any_of(hardware.gemms, [&](const GemmRate& rate) {
    return rate.dtype == dtype && is_plain_square(rate);
  });
  if (!known) {
    throw Error(
        "{} has no square matrix product in {}, the trace's precision; give --hardware a file "
        "that has one, or say the peak by --gemm-peak",
        path.string(), word(precision));
  }
  return hardware.gemm_peak(dtype);
}

double file_bandwidth(const Hardware& hardware, const fs::path& path) {
  try {
    return hardware.memory_bandwidth();
  } catch (const Error& error) {
    throw Error("{}: {}, or say the bandwidth by --memory-bandwidth", path.string(), error.what());
  }
}

/// Fills in the ceilings that are not known yet from a hardware file.
void take_from_file(Ceilings& ceilings, const fs::path& path, const TraceOrigin& origin) {
  if (ceilings.gemm_flops > 0 && ceilings.memory_bytes > 0) return;
  const Hardware hardware = read_hardware(path);
  require_same_origin(hardware, origin, path);
  if (ceilings.gemm_flops == 0 && !hardware.gemms.empty()) {
    ceilings.gemm_flops = file_peak(hardware, origin.precision, path);
    ceilings.gemm_source = path.string();
  }
  if (ceilings.memory_bytes == 0 && !hardware.memory.empty()) {
    ceilings.memory_bytes = file_bandwidth(hardware, path);
    ceilings.memory_source = path.string();
  }
}

/// Takes the peak that the run measured when it began, or a higher one that is measured now.
void take_peak_of_run(Ceilings& ceilings, const TraceOrigin& origin, bool measure) {
  ceilings.gemm_flops = origin.gemm_peak;
  ceilings.gemm_source = "the run's";
  if (!measure) return;
  const double measured = measure_gemm_peak(origin.threads, compute_dtype(origin.precision));
  if (measured <= ceilings.gemm_flops) return;
  ceilings.gemm_flops = measured;
  ceilings.gemm_source = "measured now, above the run's";
}

}  // namespace

Ceilings find_ceilings(const TraceOrigin& origin, const CeilingSources& sources) {
  Ceilings ceilings{.gemm_flops = sources.gemm_flops, .memory_bytes = sources.memory_bytes};
  if (sources.gemm_flops > 0) ceilings.gemm_source = "--gemm-peak";
  if (sources.memory_bytes > 0) ceilings.memory_source = "--memory-bandwidth";
  if (!sources.hardware.empty()) take_from_file(ceilings, sources.hardware, origin);
  if (ceilings.gemm_flops == 0) take_peak_of_run(ceilings, origin, sources.measure);
  return ceilings;
}

}  // namespace tessera
