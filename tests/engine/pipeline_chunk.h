#pragma once

#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/random.h"
#include "engine/differentiate.h"
#include "engine/executor.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/linear.h"

namespace tessera::testing {

using List = std::vector<ListEntry>;

/// A chunk of a pipeline: some linears between what it receives (x and the gradient `seed`) and
/// what it sends (y and the gradient dx). Operations at both ends compute in place where they may.
/// All contents are small integers, so sums are exact in any order.
struct PipelineChunk {
  explicit PipelineChunk(int linears = 2, int64_t tokens = 96, const std::string& prefix = "") {
    x = builder.input("x", {{tokens, 32}, DType::f32, {}});
    inner = scale(builder, x, 2);
    for (int i = 0; i < linears; ++i) {
      weights.push_back(
          builder.parameter(fmt::format("{}w{}", prefix, i), {{32, 32}, DType::f32, {}}));
      inner = linear(builder, inner, weights.back());
    }
    y = scale(builder, inner, -1);
    builder.name(y, "y");
    builder.output(y);
    seed = builder.input("seed", builder.spec(y));
    const Seed seeds[] = {{y, seed}};
    const Value wanted[] = {x};
    dx = differentiate(builder, seeds, wanted)[0];
    builder.output(dx);
  }

  bool is_received(Value value) const { return value == x || value == seed; }

  void set_weights(Executor& executor, int number) const {
    for (const Value weight : weights) {
      fill(executor.tensor(weight, number), program.info(weight).name);
      executor.tensor(program.main_gradient(weight), number).fill_zero();
    }
  }
  /// Writes the contents of an input, which depend on its name and the micro-batch.
  void write(Executor& executor, Value input, int number, int micro_batch) const {
    fill(executor.tensor(input, number, micro_batch),
         fmt::format("{} {}", program.info(input).name, micro_batch));
  }

  Program program;
  Builder builder{program};
  Value x, inner, y, seed, dx;
  std::vector<Value> weights;

 private:
  static void fill(const Tensor& tensor, const std::string& key) {
    const CounterRandom random(5, key);
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      const double normal = random.normal(static_cast<uint64_t>(i));
      tensor.data<float>()[i] = normal > 0.5 ? 1 : normal < -0.5 ? -1 : 0;
    }
  }
};

inline std::vector<float> float_values(const Tensor& tensor) {
  const auto values = tensor.values<float>();
  return {values.begin(), values.end()};
}

}  // namespace tessera::testing
