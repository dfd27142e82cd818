#pragma once

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "support/tested_devices.h"

namespace tessera::testing {

/// How far results of two kernels may lie apart. In bf16 nearly equal values may round to
/// neighbours, which are up to 2^-7 of themselves apart.
inline Tolerance device_tolerance(DType dtype) {
  return dtype == DType::bf16 ? Tolerance{2 * kBFloat16Rounding, 1e-3} : Tolerance{1e-5, 1e-5};
}

/// The threads of an emulated warp in a case of a property.
inline int any_lanes() { return *rc::gen::element(32, 64); }

/// Runs a function on all devices, and compares it with the plain kernels in the same type.
inline void expect_device_agrees(const ProgramFunction& function,
                                 const std::vector<RunInput>& inputs, RunOptions options) {
  options.threads = 1;
  options.kernels = Kernels::plain;
  const RunResult expected = run_program(function, inputs, options);
  options.kernels = Kernels::fast;
  expect_equal_bits_on_devices(
      any_lanes(),
      [&](const Emulation& device) {
        options.emulation = device;
        return run_program(function, inputs, options);
      },
      [&](const RunResult& result) {
        expect_close(result, expected, device_tolerance(options.dtype));
      });
}

/// The same for results that must be equal to the plain kernels', such as indices: run(emulation)
/// returns those of a device, or of the host if there is none.
template <typename Run>
void expect_device_equals(const Run& run) {
  const auto expected = run(std::optional<Emulation>());
  expect_equal_bits_on_devices(any_lanes(), run,
                               [&](const auto& result) { ASSERT_TRUE(result == expected); });
}

}  // namespace tessera::testing
