#include "ops/router/router_network.h"

#include "ops/activation/activation_plain.h"
#include "ops/activation/gelu_fast.h"
#include "ops/router/processor_rows.h"
#include "ops/router/router_network_kernels.h"
#include "ops/support.h"

namespace tessera {
namespace {

// The operations follow their gradients. Plain and fast kernels differ in GELU alone.

bool is_row_vector(const Spec& vector, const Spec& matrix) {
  return is_like(vector, {{matrix.shape[1]}, matrix.dtype});
}

/// Writes sums_c = the sum over rows of term(row · width + c, c), row after row.
template <typename T, typename Term>
void sum_over_rows(int64_t tokens, int64_t width, int threads, T* sums, Term term) {
  parallel_ranges(threads, width, row_grain(tokens), [&](int64_t begin, int64_t end, int) {
    std::fill(sums + begin, sums + end, T{0});
    for (int64_t row = 0; row < tokens; ++row) {
#pragma GCC ivdep
      for (int64_t c = begin; c < end; ++c) sums[c] += term(row * width + c, c);
    }
  });
}

/// Calls body(index, column) for all elements of a matrix [tokens, width], on several threads. The
/// calls must not depend on each other, because the loop is vectorised (ivdep).
template <typename Body>
void for_elements(int64_t tokens, int64_t width, int threads, Body body) {
  parallel_each(threads, tokens, row_grain(width), [&](int64_t row) {
#pragma GCC ivdep
    for (int64_t c = 0; c < width; ++c) body(row * width + c, c);
  });
}

/// inputs: the result's gradient, then scale and previous if there are any; outputs: the gradient
/// of the bias, then those of scale and previous. The gradient of x is the result's own.
class DepthAverageGradientOperation final : public Operation {
 public:
  explicit DepthAverageGradientOperation(bool has_previous) : has_previous_(has_previous) {}
  std::string_view name() const override { return "depth_average_gradient"; }
  std::string labels(std::span<const Spec>) const override {
    return has_previous_ ? "~n c, c, n c -> c, c, n c" : "~n c -> c";
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == (has_previous_ ? 3 : 1) && is_router_matrix(inputs[0]),
                   "a gradient [tokens, width] in f32 or f64 is expected, and what it needs");
    const Spec vector{{inputs[0].shape[1]}, inputs[0].dtype};
    if (!has_previous_) return {vector};
    TESSERA_EXPECT(*this, is_row_vector(inputs[1], inputs[0]) && is_like(inputs[2], inputs[0]),
                   "a scale {} and a state {} for a gradient {}", inputs[1].shape.text(),
                   inputs[2].shape.text(), inputs[0].shape.text());
    return {vector, vector, {inputs[2].shape, inputs[2].dtype}};
  }

  void run(const Execution& execution) const override {
    const std::span<const Tensor> inputs = execution.inputs, outputs = execution.outputs;
    const auto arguments = [&]<typename T>(T) -> DepthAverageGradient<T> {
      return {.tokens = inputs[0].shape()[0],
              .width = inputs[0].shape()[1],
              .result_gradient = inputs[0].pointer<T>(),
              .scale = has_previous_ ? inputs[1].pointer<T>() : nullptr,
              .previous = has_previous_ ? inputs[2].pointer<T>() : nullptr,
              .bias_gradient = outputs[0].pointer<T>(),
              .scale_gradient = has_previous_ ? outputs[1].pointer<T>() : nullptr,
              .previous_gradient = has_previous_ ? outputs[2].pointer<T>() : nullptr};
    };
    run_wide_kernel(
        execution, inputs[0].dtype(), arguments,
        [&]<typename Vendor>(Vendor, const auto& average) {
          depth_average_gradient_device<Vendor>(average, *execution.stream);
        },
        [&]<typename T>(const DepthAverageGradient<T>& average) {
          const int threads = execution.runtime.threads();
          const T* result_gradient = average.result_gradient;
          const T* previous = average.previous;
          sum_over_rows(average.tokens, average.width, threads, average.bias_gradient,
                        [=](int64_t index, int64_t) { return result_gradient[index]; });
          if (previous == nullptr) return;
          sum_over_rows(
              average.tokens, average.width, threads, average.scale_gradient,
              [=](int64_t index, int64_t) { return result_gradient[index] * previous[index]; });
          for_elements(
              average.tokens, average.width, threads,
              [=, scale = average.scale, out = average.previous_gradient](
                  int64_t index, int64_t c) { out[index] = result_gradient[index] * scale[c]; });
        });
  }

 private:
  bool has_previous_;
};

/// inputs: x, bias, then scale and previous if there are any; output [tokens, width].
class DepthAverageOperation final : public Operation {
 public:
  explicit DepthAverageOperation(bool has_previous) : has_previous_(has_previous) {}
  std::string_view name() const override { return "depth_average"; }
  std::string labels(std::span<const Spec>) const override {
    return has_previous_ ? "n c, c, c, n c -> n c" : "n c, c -> n c";
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this,
                   inputs.size() == (has_previous_ ? 4 : 2) && is_router_matrix(inputs[0]) &&
                       is_row_vector(inputs[1], inputs[0]),
                   "x [tokens, width] in f32 or f64 and a bias [width] are expected");
    TESSERA_EXPECT(*this,
                   !has_previous_ ||
                       (is_row_vector(inputs[2], inputs[0]) && is_like(inputs.back(), inputs[0])),
                   "a scale {} and a state {} for x {}", inputs[has_previous_ ? 2 : 1].shape.text(),
                   inputs.back().shape.text(), inputs[0].shape.text());
    return {{inputs[0].shape, inputs[0].dtype}};
  }
  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> output_gradients) const override {
    std::vector<Value> inputs{output_gradients[0]};
    if (has_previous_) inputs.insert(inputs.end(), {self.inputs[2], self.inputs[3]});
    const std::vector<Value> gradients = builder.apply(
        std::make_shared<DepthAverageGradientOperation>(has_previous_), std::move(inputs));
    std::vector<Value> input_gradients{output_gradients[0]};
    input_gradients.insert(input_gradients.end(), gradients.begin(), gradients.end());
    return input_gradients;
  }

  void run(const Execution& execution) const override {
    const std::span<const Tensor> inputs = execution.inputs;
    const auto arguments = [&]<typename T>(T) -> DepthAverage<T> {
      return {.tokens = inputs[0].shape()[0],
              .width = inputs[0].shape()[1],
              .x = inputs[0].pointer<T>(),
              .bias = inputs[1].pointer<T>(),
              .scale = has_previous_ ? inputs[2].pointer<T>() : nullptr,
              .previous = has_previous_ ? inputs[3].pointer<T>() : nullptr,
              .result = execution.outputs[0].pointer<T>()};
    };
    run_wide_kernel(
        execution, inputs[0].dtype(), arguments,
        [&]<typename Vendor>(Vendor, const auto& average) {
          depth_average_device<Vendor>(average, *execution.stream);
        },
        [&]<typename T>(const DepthAverage<T>& average) {
          for_elements(average.tokens, average.width, execution.runtime.threads(),
                       [=](int64_t index, int64_t c) {
                         const T biased = average.x[index] + average.bias[c];
                         average.result[index] =
                             average.previous == nullptr
                                 ? biased
                                 : biased + average.scale[c] * average.previous[index];
                       });
        });
  }

 private:
  bool has_previous_;
};

/// Calls body(gelu) with the plain or the fast GELU. gelu(x) returns the value and the slope at x.
template <typename T, typename Body>
void with_gelu(const Target& target, Body body) {
  const auto plain = [](T x) { return activation_plain(Activation::gelu, x); };
  if constexpr (std::is_same_v<T, double>) {
    body(plain);
  } else if (use_plain(target, dtype_of<T>)) {
    body(plain);
  } else {
    body([](T x) { return gelu_fast(x); });
  }
}

/// inputs: x, bias, the result's gradient; outputs: the gradients of x and bias.
class BiasedGeluGradientOperation final : public Operation {
 public:
  std::string_view name() const override { return "biased_gelu_gradient"; }
  std::string labels(std::span<const Spec>) const override { return "n c, c, ~n c -> n c, c"; }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this,
                   inputs.size() == 3 && is_router_matrix(inputs[0]) &&
                       is_row_vector(inputs[1], inputs[0]) && is_like(inputs[2], inputs[0]),
                   "x [tokens, width] in f32 or f64, a bias [width] and a gradient are expected");
    return {{inputs[0].shape, inputs[0].dtype}, {inputs[1].shape, inputs[1].dtype}};
  }
  void run(const Execution& execution) const override {
    const Tensor& x = execution.inputs[0];
    const auto arguments = [&]<typename T>(T) -> BiasedGeluGradient<T> {
      return {.tokens = x.shape()[0],
              .width = x.shape()[1],
              .x = x.pointer<T>(),
              .bias = execution.inputs[1].pointer<T>(),
              .result_gradient = execution.inputs[2].pointer<T>(),
              .x_gradient = execution.outputs[0].pointer<T>(),
              .bias_gradient = execution.outputs[1].pointer<T>()};
    };
    run_wide_kernel(
        execution, x.dtype(), arguments,
        [&]<typename Vendor>(Vendor, const auto& gelu) {
          biased_gelu_gradient_device<Vendor>(gelu, *execution.stream);
        },
        [&]<typename T>(const BiasedGeluGradient<T>& gelu) {
          const int threads = execution.runtime.threads();
          with_gelu<T>(execution.runtime.target(), [&](auto gelu_at) {
            for_elements(gelu.tokens, gelu.width, threads, [=](int64_t index, int64_t c) {
              gelu.x_gradient[index] =
                  gelu.result_gradient[index] * gelu_at(gelu.x[index] + gelu.bias[c]).slope;
            });
          });
          sum_over_rows(
              gelu.tokens, gelu.width, threads, gelu.bias_gradient,
              [gradient = gelu.x_gradient](int64_t index, int64_t) { return gradient[index]; });
        });
  }
};

/// inputs: x, bias; output [tokens, width].
class BiasedGeluOperation final : public Operation {
 public:
  std::string_view name() const override { return "biased_gelu"; }
  std::string labels(std::span<const Spec>) const override { return "n c, c -> n c"; }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(
        *this,
        inputs.size() == 2 && is_router_matrix(inputs[0]) && is_row_vector(inputs[1], inputs[0]),
        "x [tokens, width] in f32 or f64 and a bias [width] are expected");
    return {{inputs[0].shape, inputs[0].dtype}};
  }
  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> output_gradients) const override {
    return builder.apply(std::make_shared<BiasedGeluGradientOperation>(),
                         {self.inputs[0], self.inputs[1], output_gradients[0]});
  }
  void run(const Execution& execution) const override {
    const Tensor& x = execution.inputs[0];
    run_wide_kernel(
        execution, x.dtype(),
        [&]<typename T>(T) -> BiasedGelu<T> {
          return {x.shape()[0], x.shape()[1], x.pointer<T>(), execution.inputs[1].pointer<T>(),
                  execution.outputs[0].pointer<T>()};
        },
        [&]<typename Vendor>(Vendor, const auto& gelu) {
          biased_gelu_device<Vendor>(gelu, *execution.stream);
        },
        [&]<typename T>(const BiasedGelu<T>& gelu) {
          with_gelu<T>(execution.runtime.target(), [&](auto gelu_at) {
            for_elements(gelu.tokens, gelu.width, execution.runtime.threads(),
                         [=](int64_t index, int64_t c) {
                           gelu.result[index] = gelu_at(gelu.x[index] + gelu.bias[c]).value;
                         });
          });
        });
  }
};

}  // namespace

Value depth_average(Builder& builder, Value x, Value bias, std::optional<Value> scale,
                    std::optional<Value> previous) {
  TESSERA_CHECK(scale.has_value() == previous.has_value(), "a scale and a state, or neither");
  std::vector<Value> inputs{x, bias};
  if (previous) inputs.insert(inputs.end(), {*scale, *previous});
  return builder.apply_single(std::make_shared<DepthAverageOperation>(previous.has_value()),
                              std::move(inputs));
}

Value biased_gelu(Builder& builder, Value x, Value bias) {
  return builder.apply_single(std::make_shared<BiasedGeluOperation>(), {x, bias});
}

}  // namespace tessera
