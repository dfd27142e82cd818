#include "tensor/device_precision.h"

#include <gtest/gtest.h>

#include "base/words.h"
#include "support/error_of.h"

namespace tessera {
namespace {

TEST(DevicePrecision, DevicesComputeInBf16AndFp32) {
  for (const std::string& name : words_of<Device>()) {
    const auto device = from_word<Device>(name);
    for (const Precision precision : {Precision::bf16, Precision::fp32}) {
      EXPECT_FALSE(precision_problem(device, precision, "", "")) << name;
    }
    EXPECT_EQ(precision_problem(device, Precision::fp64, "", "").has_value(), name != "cpu");
  }
  EXPECT_EQ(
      error_of(
          [] { require_precision(Device::hip, Precision::fp64, "--precision", "--device cpu"); }),
      "--precision is \"fp64\", which the device \"hip\" does not compute in; choose --device "
      "cpu");
}

}  // namespace
}  // namespace tessera
