#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "engine/differentiate.h"
#include "engine/executor.h"
#include "ops/host_target.h"
#include "program/builder.h"
#include "support/program_run.h"
#include "tensor/tensor.h"

namespace tessera::testing {

/// Random normal values, the same at every call with the same name.
inline Tensor random_tensor(const Shape& shape, DType dtype, const std::string& name,
                            double deviation = 1.0) {
  Tensor wide(shape, DType::f64);
  const CounterRandom random(17, name);
  for (int64_t i = 0; i < wide.elements(); ++i) {
    wide.data<double>()[i] = deviation * random.normal(static_cast<uint64_t>(i));
  }
  Tensor result(shape, dtype);
  convert(wide, result);
  return result;
}

/// A function of floating inputs, built as a program. `outputs` are those whose gradients are
/// checked.
using ProgramFunction =
    std::function<std::vector<Value>(Builder&, std::span<const Value> floating)>;

struct GradientCheck {
  double step = 1e-5;       ///< of the central difference
  double tolerance = 1e-6;  ///< relative, see check_gradients()
  double deviation = 1.0;   ///< of the random inputs
  int threads = 2;
  std::string seed;  ///< the input that the function itself declared for its output's gradient
};

/// Integer or other fixed inputs that the function makes with builder.input(): by name.
using FixedInputs = std::map<std::string, Tensor>;

/// Compares every entry of every floating input's gradient, as the program's own backward pass
/// gives it, with central finite differences in f64. `prepare` may overwrite the random inputs.
///
/// An entry may differ by `tolerance` of itself, and beside that by no more than the difference
/// quotient's own error: rounding, epsilon / step of the sum of the objective's absolute terms
/// (2e-11 of it; a fifth of that occurs), and truncation, taken as step² of the largest entry. It
/// never differs by more than `tolerance` of the largest entry.
inline void check_gradients(const ProgramFunction& function, const std::vector<Shape>& shapes,
                            const std::function<FixedInputs()>& fixed = nullptr,
                            const GradientCheck& options = {},
                            const std::function<void(std::vector<Tensor>&)>& prepare = nullptr) {
  Runtime runtime(host_target(options.threads));
  Program program;
  Builder builder(program);
  std::vector<Value> inputs;
  for (size_t i = 0; i < shapes.size(); ++i) {
    inputs.push_back(builder.parameter("input" + std::to_string(i), {shapes[i], DType::f64, {}}));
  }
  const std::vector<Value> outputs = function(builder, inputs);
  std::vector<Seed> seeds;
  for (const Value output : outputs) {
    builder.output(output);
    seeds.push_back({output,
                     options.seed.empty()
                         ? builder.input("seed" + std::to_string(output.id), builder.spec(output))
                         : program.find(options.seed),
                     SeedKind::boundary});
  }
  differentiate(builder, seeds);

  std::vector<Tensor> values;
  for (size_t i = 0; i < shapes.size(); ++i) {
    values.push_back(
        random_tensor(shapes[i], DType::f64, "input" + std::to_string(i), options.deviation));
  }
  if (prepare) prepare(values);
  ProgramRun frame(program, runtime);
  for (size_t i = 0; i < inputs.size(); ++i) {
    frame.bind(inputs[i], values[i]);
    if (const Value gradient = program.main_gradient(inputs[i])) {
      Tensor memory(shapes[i], DType::f64);
      memory.fill_zero();
      frame.bind(gradient, memory);
    }
  }
  if (fixed) {
    for (const auto& [name, tensor] : fixed()) frame.bind(program.find(name), tensor);
  }
  for (const Seed& seed : seeds) {
    frame.bind(seed.gradient,
               random_tensor(program.spec(seed.gradient).shape, program.spec(seed.gradient).dtype,
                             program.info(seed.gradient).name));
  }
  frame.clear_unused_rows();
  frame.run();

  // The scalar whose gradient the seeds ask for, and the sum of its absolute terms.
  double magnitude = 0;
  const auto objective = [&] {
    frame.forward();
    double total = 0;
    magnitude = 0;
    for (const Seed& seed : seeds) {
      const auto output = frame[seed.value].values<double>();
      const auto weight = frame[seed.gradient].values<double>();
      for (size_t i = 0; i < output.size(); ++i) {
        total += output[i] * weight[i];
        magnitude += std::abs(output[i] * weight[i]);
      }
    }
    return total;
  };
  std::vector<std::vector<double>> gradients;  // kept, since a forward pass may add into them
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Value gradient = program.main_gradient(inputs[i]);
    ASSERT_TRUE(bool(gradient)) << "input " << i << " has no gradient";
    const auto entries = frame[gradient].values<double>();
    gradients.emplace_back(entries.begin(), entries.end());
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::vector<double>& gradient = gradients[i];
    double largest = 1e-3;
    for (const double entry : gradient) largest = std::max(largest, std::abs(entry));
    for (int64_t at = 0; at < values[i].elements(); ++at) {
      double& entry = values[i].data<double>()[at];
      const double before = entry;
      entry = before + options.step;
      const double above = objective();
      entry = before - options.step;
      const double below = objective();
      entry = before;
      const double expected = (above - below) / (2 * options.step);
      const double rounding = magnitude * std::numeric_limits<double>::epsilon() / options.step;
      const double truncation = options.step * options.step * largest;
      const double bound = std::min(options.tolerance * largest,
                                    options.tolerance * std::abs(expected) + rounding + truncation);
      ASSERT_NEAR(gradient[static_cast<size_t>(at)], expected, bound)
          << "input " << i << ", element " << at << " of " << shapes[i].text();
    }
  }
}

}  // namespace tessera::testing
