#include "ops/moe/skip_class.h"

#include "base/interleaved_sum.h"
#include "ops/moe/skip_class_kernels.h"
#include "ops/support.h"

namespace tessera {
namespace {

// The gradient's operation comes first: that of add_skipped() makes it. Kernels are plain and fast.

/// Throws InternalError unless rows, weights and indices are those of the same tokens.
void expect_choices(const Operation& operation, const Spec& rows, const Spec& weights,
                    const Spec& indices) {
  TESSERA_EXPECT(operation,
                 rows.shape.rank() == 2 && is_floating(rows.dtype) &&
                     weights.dtype == accumulation_dtype(rows.dtype) &&
                     indices.dtype == DType::i32 && indices.shape == weights.shape &&
                     weights.shape.rank() == 2 && weights.shape[0] == rows.shape[0],
                 "rows {}, weights {} and indices {}", text_of(rows), text_of(weights),
                 text_of(indices));
}

template <typename Wide>
SkippedChoices<Wide> choices_of(const Tensor& weights, const Tensor& indices, int64_t experts) {
  return {.tokens = weights.shape()[0],
          .k = weights.shape()[1],
          .experts = experts,
          .weights = weights.pointer<Wide>(),
          .indices = indices.pointer<int32_t>()};
}

/// inputs: x, weights, indices, the result's gradient; outputs: the gradients of x and the weights.
class AddSkippedGradientOperation final : public Operation {
 public:
  explicit AddSkippedGradientOperation(int64_t experts) : experts_(experts) {}
  std::string_view name() const override { return "add_skipped_gradient"; }
  std::string labels(std::span<const Spec>) const override {
    return "n c!, n k!, n k!, ~n c! -> n c, n k";
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == 4, "{} inputs", inputs.size());
    expect_choices(*this, inputs[0], inputs[1], inputs[2]);
    TESSERA_EXPECT(*this, is_like(inputs[3], inputs[0]), "a gradient {} of {}", text_of(inputs[3]),
                   text_of(inputs[0]));
    return {inputs[0], inputs[1]};
  }

  void run(const Execution& execution) const override {
    const std::span<const Tensor> inputs = execution.inputs;
    const auto arguments = [&]<typename T>(T) -> AddSkippedGradient<T> {
      return {.choices = choices_of<Compute<T>>(inputs[1], inputs[2], experts_),
              .hidden = inputs[0].shape()[1],
              .x = inputs[0].pointer<T>(),
              .result_gradient = inputs[3].pointer<T>(),
              .x_gradient = execution.outputs[0].pointer<T>(),
              .weights_gradient = execution.outputs[1].pointer<Compute<T>>()};
    };
    const auto kernel = [&](const auto& skipped) {
      parallel_each(execution.runtime.threads(), skipped.choices.tokens, row_grain(skipped.hidden),
                    [&](int64_t token) { gradient_of_token(skipped, token); });
    };
    run_kernel(
        execution, inputs[0].dtype(), arguments,
        [&]<typename Vendor>(Vendor, const auto& skipped) {
          add_skipped_gradient_device<Vendor>(skipped, *execution.stream);
        },
        kernel, kernel);
  }

 private:
  template <typename T>
  static void gradient_of_token(const AddSkippedGradient<T>& skipped, int64_t token) {
    using Wide = Compute<T>;
    const T* x = skipped.x + token * skipped.hidden;
    const T* result_gradient = skipped.result_gradient + token * skipped.hidden;
    T* x_gradient = skipped.x_gradient + token * skipped.hidden;
    const Wide weight = skipped.choices.weight(token);
#pragma GCC ivdep
    for (int64_t i = 0; i < skipped.hidden; ++i) {
      x_gradient[i] = static_cast<T>(weight * static_cast<Wide>(result_gradient[i]));
    }
    const Wide product = interleaved_sum<Wide>(skipped.hidden, [=](int64_t i) {
      return static_cast<Wide>(x[i]) * static_cast<Wide>(result_gradient[i]);
    });
    for (int64_t j = 0; j < skipped.choices.k; ++j) {
      skipped.weights_gradient[token * skipped.choices.k + j] =
          skipped.choices.skips(token, j) ? product : Wide{0};
    }
  }

  int64_t experts_;
};

/// inputs: output, x, weights, indices. The result may be in the memory of `output`.
class AddSkippedOperation final : public Operation {
 public:
  explicit AddSkippedOperation(int64_t experts) : experts_(experts) {}
  std::string_view name() const override { return "add_skipped"; }
  std::string labels(std::span<const Spec>) const override {
    return "n c!, n c!, n k!, n k! -> n c";
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == 4 && is_like(inputs[1], inputs[0]),
                   "an output and an input of the same shape and type are expected");
    expect_choices(*this, inputs[0], inputs[2], inputs[3]);
    return {{inputs[0].shape, inputs[0].dtype}};
  }
  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> output_gradients) const override {
    const std::vector<Value> gradients =
        builder.apply(std::make_shared<AddSkippedGradientOperation>(experts_),
                      {self.inputs[1], self.inputs[2], self.inputs[3], output_gradients[0]});
    return {output_gradients[0], gradients[0], gradients[1], Value{}};
  }
  int in_place_input(int) const override { return 0; }

  void run(const Execution& execution) const override {
    const std::span<const Tensor> inputs = execution.inputs;
    const auto arguments = [&]<typename T>(T) -> AddSkipped<T> {
      return {.choices = choices_of<Compute<T>>(inputs[2], inputs[3], experts_),
              .hidden = inputs[0].shape()[1],
              .output = inputs[0].pointer<T>(),
              .x = inputs[1].pointer<T>(),
              .result = execution.outputs[0].pointer<T>()};
    };
    const auto kernel = [&]<typename T>(const AddSkipped<T>& skipped) {
      using Wide = Compute<T>;
      parallel_each(execution.runtime.threads(), skipped.choices.tokens, row_grain(skipped.hidden),
                    [&](int64_t token) {
                      const Wide weight = skipped.choices.weight(token);
                      const int64_t start = token * skipped.hidden;
                      const T* output = skipped.output + start;
                      const T* x = skipped.x + start;
                      T* result = skipped.result + start;
#pragma GCC ivdep
                      for (int64_t i = 0; i < skipped.hidden; ++i) {
                        result[i] = static_cast<T>(static_cast<Wide>(output[i]) +
                                                   weight * static_cast<Wide>(x[i]));
                      }
                    });
    };
    run_kernel(
        execution, inputs[0].dtype(), arguments,
        [&]<typename Vendor>(Vendor, const auto& skipped) {
          add_skipped_device<Vendor>(skipped, *execution.stream);
        },
        kernel, kernel);
  }

 private:
  int64_t experts_;
};

}  // namespace

Value add_skipped(Builder& builder, Value output, Value x, const RouterSelection& selection,
                  int64_t experts) {
  return builder.apply_single(std::make_shared<AddSkippedOperation>(experts),
                              {output, x, selection.weights, selection.indices});
}

}  // namespace tessera
