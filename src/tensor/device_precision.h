#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "device/device.h"
#include "tensor/dtype.h"

namespace tessera {

/// Returns the text of an error if a device does not compute in a precision, or nothing. Kernels of
/// devices compute in bf16 and fp32; the processor computes in fp64 too. `setting` names the
/// setting of the precision, such as "train.precision". `choices` names the alternatives.
std::optional<std::string> precision_problem(Device device, Precision precision,
                                             std::string_view setting, std::string_view choices);

/// Throws Error with the text of precision_problem(), if there is one.
void require_precision(Device device, Precision precision, std::string_view setting,
                       std::string_view choices);

}  // namespace tessera
