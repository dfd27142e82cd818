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

/// Runs a function on the emulated device, with warps of 32 or of 64 threads as the property's case
/// has it, in three orders of its threads, and compares it with the plain kernels in the same type.
/// The orders must give equal bits: a kernel that lacks a barrier does not.
inline void expect_device_agrees(const ProgramFunction& function,
                                 const std::vector<RunInput>& inputs, RunOptions options) {
  options.threads = 1;
  options.kernels = Kernels::plain;
  const RunResult expected = run_program(function, inputs, options);
  options.kernels = Kernels::fast;
  const int lanes = *rc::gen::element(32, 64);
  std::optional<RunResult> first;
  for (const emulation::Order order :
       {emulation::Order::forward, emulation::Order::backward, emulation::Order::shuffled}) {
    options.emulation = Emulation{lanes, {.order = order, .seed = 1}};
    const RunResult result = run_program(function, inputs, options);
    if (!first) {
      expect_close(result, expected, device_tolerance(options.dtype));
      first = result;
    }
    ASSERT_EQ(result, *first) << "warps of " << lanes << ": bits go with the order of threads";
  }
}

/// The same for results that must be equal to the plain kernels', such as indices: run(emulation)
/// returns those of the emulated device, or of the host if there is none.
template <typename Run>
void expect_device_equals(const Run& run) {
  const auto expected = run(std::optional<Emulation>());
  const int lanes = *rc::gen::element(32, 64);
  for (const emulation::Order order :
       {emulation::Order::forward, emulation::Order::backward, emulation::Order::shuffled}) {
    const bool equal = run(Emulation{lanes, {.order = order, .seed = 1}}) == expected;
    ASSERT_TRUE(equal) << "warps of " << lanes << ", order " << static_cast<int>(order);
  }
}

}  // namespace tessera::testing
