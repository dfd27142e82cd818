#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "device/device.h"
#include "tensor/dtype.h"

namespace tessera {

/// Returns what is wrong with computing in a precision on a device, or nothing. Kernels of devices
/// compute in bf16 and fp32; the processor computes in fp64 too. `setting` names the precision, as
/// "train.precision". `choose` says what to choose instead.
std::optional<std::string> precision_problem(Device device, Precision precision,
                                             std::string_view setting, std::string_view choose);

/// Throws Error with that text, if there is one.
void require_precision(Device device, Precision precision, std::string_view setting,
                       std::string_view choose);

}  // namespace tessera
