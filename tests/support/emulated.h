#pragma once

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "support/run_program.h"

namespace tessera::testing {

/// How far results of two kernels may lie apart. In bf16 nearly equal values may round to
/// neighbours, which are up to 2^-7 of themselves apart.
inline Tolerance device_tolerance(DType dtype) {
  return dtype == DType::bf16 ? Tolerance{2 * kBFloat16Rounding, 1e-3} : Tolerance{1e-5, 1e-5};
}

/// The real device on which kernels are tested too, and why there is none if there is none. AMD's
/// waits for its library of matrix products.
struct RealDevice {
  std::optional<Emulation> device;
  std::string missing;
};
inline const RealDevice& real_device() {
  static const RealDevice found = [] {
    RealDevice result;
    try {
      open_accelerator(Device::cuda);
      result.device = Emulation{.device = Device::cuda};
    } catch (const Error& error) {
      result.missing = error.what();
    }
    return result;
  }();
  return found;
}

/// Runs of one device that must give equal bits.
using DeviceRuns = std::vector<Emulation>;

/// The emulated device with warps of `lanes` threads, in three orders of its threads: a kernel that
/// lacks a barrier gives other bits. Where there is a real device, that one too, twice.
inline std::vector<DeviceRuns> tested_devices(int lanes) {
  DeviceRuns emulated;
  for (const emulation::Order order :
       {emulation::Order::forward, emulation::Order::backward, emulation::Order::shuffled}) {
    emulated.push_back({lanes, {.order = order, .seed = 1}});
  }
  if (!real_device().device) return {emulated};
  return {emulated, {*real_device().device, *real_device().device}};
}

inline std::string describe(const Emulation& device) {
  if (device.device != Device::emulated) return std::string(word(device.device));
  return fmt::format("warps of {}, order {}", device.lanes, static_cast<int>(device.options.order));
}

/// Runs a function on the emulated device, with warps of 32 or of 64 threads as the property's case
/// has it, and on a real device where there is one, and compares it with the plain kernels in the
/// same type.
inline void expect_device_agrees(const ProgramFunction& function,
                                 const std::vector<RunInput>& inputs, RunOptions options) {
  options.threads = 1;
  options.kernels = Kernels::plain;
  const RunResult expected = run_program(function, inputs, options);
  options.kernels = Kernels::fast;
  for (const DeviceRuns& runs : tested_devices(*rc::gen::element(32, 64))) {
    std::optional<RunResult> first;
    for (const Emulation& device : runs) {
      options.emulation = device;
      const RunResult result = run_program(function, inputs, options);
      if (!first) {
        expect_close(result, expected, device_tolerance(options.dtype));
        first = result;
      }
      ASSERT_EQ(result, *first) << describe(device) << ": bits differ from run to run";
    }
  }
}

/// The same for results that must be equal to the plain kernels', such as indices: run(emulation)
/// returns those of a device, or of the host if there is none.
template <typename Run>
void expect_device_equals(const Run& run) {
  const auto expected = run(std::optional<Emulation>());
  for (const DeviceRuns& runs : tested_devices(*rc::gen::element(32, 64))) {
    for (const Emulation& device : runs) {
      const bool equal = run(device) == expected;
      ASSERT_TRUE(equal) << describe(device);
    }
  }
}

}  // namespace tessera::testing
