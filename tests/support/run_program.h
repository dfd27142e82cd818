#pragma once

#include <optional>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "device/emulated_accelerator.h"
#include "ops/host_target.h"
#include "support/gradient_check.h"

namespace tessera::testing {

/// How a device is emulated, or a real device, to which the rest does not apply.
struct Emulation {
  int lanes = 32;
  emulation::Options options = {};
  Device device = Device::emulated;
};

/// A runtime of the processor, or of a device.
inline Runtime make_runtime(Target target, const std::optional<Emulation>& emulation) {
  if (!emulation) return Runtime(target);
  target.device = emulation->device;
  if (target.device != Device::emulated) return Runtime(target);
  return Runtime(target, open_emulated(emulation->lanes, emulation->options));
}

/// How a function's program is run.
struct RunOptions {
  DType dtype = DType::f32;  ///< of the activations
  Kernels kernels = Kernels::fast;
  int threads = 2;
  bool inputs_fit_bf16 = false;  ///< random values are rounded to bf16 first
  bool backward = true;
  bool unused_rows = false;  ///< whether some rows are not written; they are zeros then
  FixedInputs fixed = {};    ///< inputs that the function makes by name
  std::optional<Emulation> emulation = {};  ///< run on that device; otherwise on the host
};

/// A random input of the function: of the activations' type, or of their accumulation type.
struct RunInput {
  Shape shape;
  bool wide = false;
};

/// Results as f64, in the order of the function's outputs and inputs.
struct RunResult {
  std::vector<std::vector<double>> outputs;
  std::vector<std::vector<double>> gradients;  ///< empty for an input without a gradient
  bool operator==(const RunResult&) const = default;
};

inline std::vector<double> as_doubles(const Tensor& tensor) {
  const Tensor wide(tensor.shape(), DType::f64);
  convert(tensor, wide);
  return {wide.values<double>().begin(), wide.values<double>().end()};
}

/// Runs the function forward and backward on random inputs, with random gradients of its outputs.
/// Equal names give equal random numbers, so that two runs differ by their options alone.
inline RunResult run_program(const ProgramFunction& function, const std::vector<RunInput>& inputs,
                             const RunOptions& options) {
  Runtime runtime = make_runtime(host_target(options.threads, options.kernels), options.emulation);
  Program program;
  Builder builder(program);
  std::vector<Value> values;
  for (const RunInput& input : inputs) {
    const DType dtype = input.wide ? accumulation_dtype(options.dtype) : options.dtype;
    values.push_back(
        builder.parameter(fmt::format("input{}", values.size()), {input.shape, dtype, {}}));
  }
  const std::vector<Value> outputs = function(builder, values);
  std::vector<Seed> seeds;
  for (const Value output : outputs) {
    builder.output(output);
    const std::string name = fmt::format("seed{}", seeds.size());
    if (options.backward)
      seeds.push_back({output, builder.input(name, builder.spec(output)), SeedKind::boundary});
  }
  if (options.backward) differentiate(builder, seeds);

  const auto random_of = [&](Value value) {
    const Spec& spec = program.spec(value);
    const DType first = options.inputs_fit_bf16 ? DType::bf16 : spec.dtype;
    const Tensor rounded = random_tensor(spec.shape, first, program.info(value).name);
    Tensor tensor(spec.shape, spec.dtype);
    convert(rounded, tensor);
    return tensor;
  };
  ProgramRun frame(program, runtime);
  for (const Value value : values) {
    frame.bind(value, random_of(value));
    if (const Value gradient = program.main_gradient(value)) {
      const Tensor memory(program.spec(gradient).shape, program.spec(gradient).dtype);
      memory.fill_zero();
      frame.bind(gradient, memory);
    }
  }
  for (const auto& [name, tensor] : options.fixed) frame.bind(program.find(name), tensor);
  for (const Seed& seed : seeds) frame.bind(seed.gradient, random_of(seed.gradient));
  if (options.emulation) frame.poison();  // memory of a device begins as zeros
  if (options.unused_rows) frame.clear_unused_rows();
  frame.run();

  RunResult result;
  for (const Value output : outputs) result.outputs.push_back(as_doubles(frame[output]));
  for (const Value value : values) {
    const Value gradient = program.main_gradient(value);
    result.gradients.push_back(gradient ? as_doubles(frame[gradient]) : std::vector<double>{});
  }
  return result;
}

/// How far an entry may lie from the expected one: relative to itself, and to the largest entry.
struct Tolerance {
  double of_entry = 0;
  double of_largest = 0;
};

inline void expect_close(const std::vector<double>& actual, const std::vector<double>& expected,
                         const Tolerance& tolerance, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double largest = 0;
  for (const double entry : expected) largest = std::max(largest, std::abs(entry));
  for (size_t i = 0; i < actual.size(); ++i) {
    const double bound =
        tolerance.of_entry * std::abs(expected[i]) + tolerance.of_largest * largest;
    ASSERT_LE(std::abs(actual[i] - expected[i]), bound)
        << what << ", element " << i << ": " << actual[i] << " instead of " << expected[i];
  }
}

inline void expect_close(const RunResult& actual, const RunResult& expected,
                         const Tolerance& tolerance) {
  ASSERT_EQ(actual.outputs.size(), expected.outputs.size());
  for (size_t i = 0; i < actual.outputs.size(); ++i) {
    expect_close(actual.outputs[i], expected.outputs[i], tolerance, fmt::format("output {}", i));
  }
  for (size_t i = 0; i < actual.gradients.size(); ++i) {
    expect_close(actual.gradients[i], expected.gradients[i], tolerance,
                 fmt::format("gradient of input {}", i));
  }
}

/// Rounding to bf16 moves a value by at most half a unit in its last place: 2^-8 of itself.
inline constexpr double kBFloat16Rounding = 1.0 / 256;

}  // namespace tessera::testing
