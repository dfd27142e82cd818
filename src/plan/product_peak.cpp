#include "plan/product_peak.h"

#include <fmt/format.h>

#include "config/read_for_key.h"

namespace tessera {

bool rounds_to_tf32(const RunConfig& config, Device device) {
  return config.train.tf32 && config.train.precision == Precision::fp32 && device == Device::cuda;
}

double product_peak(const Hardware& hardware, const RunConfig& config) {
  const Device device = hardware.accelerator ? hardware.accelerator->device : Device::cpu;
  return rounds_to_tf32(config, device) ? hardware.tf32_peak()
                                        : hardware.gemm_peak(compute_dtype(config.train.precision));
}

std::optional<ProductPeak> configured_peak(const RunConfig& config,
                                           const Accelerator* accelerator) {
  const std::string& path = config.run.hardware;
  if (path.empty()) return std::nullopt;
  return read_for_key("run.hardware", path, [&] {
    const Hardware hardware = read_hardware(path);
    if (accelerator == nullptr) {
      require_same_processor(hardware, static_cast<int>(config.run.threads), path);
    } else {
      require_same_accelerator(hardware, *accelerator, path);
    }
    // Peaks of TF32 are always taken from the data sheet (see Hardware::tf32_peak()).
    const bool from_sheet =
        hardware.gemms.empty() ||
        (accelerator != nullptr && rounds_to_tf32(config, accelerator->device()));
    return ProductPeak{
        .flops = product_peak(hardware, config),
        .source = fmt::format("{} {}", from_sheet ? "the data sheet in" : "measured, in", path)};
  });
}

}  // namespace tessera
