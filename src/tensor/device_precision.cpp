#include "tensor/device_precision.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/words.h"

namespace tessera {

std::optional<std::string> precision_problem(Device device, Precision precision,
                                             std::string_view setting, std::string_view choices) {
  if (device == Device::cpu || precision != Precision::fp64) return std::nullopt;
  return fmt::format("{} is \"{}\", which the device \"{}\" does not compute in; choose {}",
                     setting, word(precision), word(device), choices);
}

void require_precision(Device device, Precision precision, std::string_view setting,
                       std::string_view choices) {
  if (const auto problem = precision_problem(device, precision, setting, choices)) {
    throw Error("{}", *problem);
  }
}

}  // namespace tessera
