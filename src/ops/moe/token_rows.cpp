#include "ops/moe/token_rows.h"

#include <algorithm>
#include <cstring>

#include "ops/elementwise/elementwise.h"
#include "ops/moe/routed_types.h"
#include "ops/moe/token_rows_kernels.h"
#include "ops/support.h"

namespace tessera {
namespace {

// Three kernels move numbers between tokens [tokens, hidden] and their routed rows [rows, hidden]:
//
//   GatherTokens::run() each row is a copy of its token: the forward pass of gather_tokens()
//   sum_routed_rows()   each token is a weighted sum of its rows: the forward pass of
//                       reduce_experts() and, without weights, the backward pass of gather_tokens()
//   propagate()         the gradient of that sum: the backward pass of reduce_experts()
//
// The first two are parallel over the rows that they write. propagate() is parallel over tokens,
// and a routed row belongs to one token. So no two threads write to the same row. Each kernel
// serves as the plain and as the fast one. The device kernels are in token_rows.cu.

/// Writes result[h] = Σ_j weights[j] * rows[row_of_choice[j], h] for one token. Null weights stand
/// for ones. Sums kCachedColumns columns at a time: their sums stay in the first-level cache.
template <typename In, typename Out>
void sum_token(const In* rows, const int32_t* row_of_choice, const Compute<In>* weights, int64_t k,
               int64_t width, Out* result) {
  using Wide = Compute<In>;
  constexpr int64_t kCachedColumns = 1024;
  Wide sum[kCachedColumns];
  for (int64_t first = 0; first < width; first += kCachedColumns) {
    const int64_t count = std::min(kCachedColumns, width - first);
    std::fill_n(sum, count, Wide{0});
    for (int64_t j = 0; j < k; ++j) {
      if (row_of_choice[j] < 0) continue;
      const In* row = rows + row_of_choice[j] * width + first;
      const Wide weight = weights == nullptr ? Wide{1} : weights[j];
#pragma omp simd
      for (int64_t h = 0; h < count; ++h) sum[h] += weight * static_cast<Wide>(row[h]);
    }
    // No simd pragma here: it would keep the compiler from vectorising stores of bf16.
    for (int64_t h = 0; h < count; ++h) {
      result[first + h] = static_cast<Out>(static_cast<Compute<Out>>(sum[h]));
    }
  }
}

/// Computes result_t = Σ_j weights_tj · rows[output_indices_tj]. The sum is taken in the
/// accumulation type in the order of j and rounded once. Choices without a row (-1) add nothing.
/// `weights` is [tokens, k] in the accumulation type; null stands for ones.
void sum_routed_rows(const Execution& execution, const Tensor& rows, const Tensor& output_indices,
                     const Tensor* weights, const Tensor& result) {
  const int64_t tokens = result.shape()[0], k = output_indices.shape()[1];
  const int64_t width = result.shape()[1];
  const auto arguments = [&]<typename In, typename Out>(In, Out) -> RowSum<In, Out> {
    return {tokens,
            k,
            width,
            rows.pointer<In>(),
            output_indices.pointer<int32_t>(),
            weights != nullptr ? weights->pointer<Compute<In>>() : nullptr,
            result.pointer<Out>()};
  };
  if (execution.stream != nullptr) {
    return for_vendor(*execution.stream, [&]<typename Vendor>(Vendor) {
      dispatch_device(rows.dtype(), [&](auto in) {
        dispatch_device(result.dtype(), [&](auto out) {
          sum_rows_device<Vendor>(arguments(in, out), *execution.stream);
        });
      });
    });
  }
  dispatch_floating(rows.dtype(), [&](auto in) {
    dispatch_floating(result.dtype(), [&](auto out) {
      const auto sum = arguments(in, out);
      parallel_each(execution.runtime.threads(), tokens, row_grain(k * width), [&](int64_t t) {
        sum_token(sum.rows, sum.row_of_choice + t * k,
                  sum.weights == nullptr ? nullptr : sum.weights + t * k, k, width,
                  sum.result + t * width);
      });
    });
  });
}

/// Returns the number of rows that hold a token. The others come last, with negative indices.
int64_t rows_in_use(const Tensor& input_indices) {
  const std::span<const int32_t> token_of_row = input_indices.values<int32_t>();
  return std::ranges::partition_point(token_of_row, [](int32_t token) { return token >= 0; }) -
         token_of_row.begin();
}

/// inputs: the gradient of the routed rows [rows, hidden], output_indices i32 [tokens, k]; output
/// [tokens, hidden].
class GatherTokensGradient final : public Operation {
 public:
  explicit GatherTokensGradient(DType dtype) : dtype_(dtype) {}
  std::string_view name() const override { return "gather_tokens_gradient"; }

  std::string labels(std::span<const Spec>) const override { return "~r! c, n! k! -> n c"; }
  HandRule hand_rule() const override {
    return routed_rule({Routed::rows, Routed::choices}, {Routed::tokens});
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this,
                   inputs.size() == 2 && is_floating(inputs[0].dtype) &&
                       inputs[0].shape.rank() == 2 && inputs[1].dtype == DType::i32 &&
                       inputs[1].shape.rank() == 2,
                   "a gradient of routed rows and their output indices are expected");
    return {{{inputs[1].shape[0], inputs[0].shape[1]}, dtype_}};
  }
  void run(const Execution& execution) const override {
    sum_routed_rows(execution, execution.inputs[0], execution.inputs[1], nullptr,
                    execution.outputs[0]);
  }

 private:
  DType dtype_;
};

/// inputs: x [tokens, hidden], input_indices i32 [rows], output_indices i32 [tokens, k], which only
/// the gradient reads; output [rows, hidden].
class GatherTokens final : public Operation {
 public:
  std::string_view name() const override { return "gather_tokens"; }

  std::string labels(std::span<const Spec>) const override { return "n! c, r!, n! k! -> r c"; }
  HandRule hand_rule() const override {
    return routed_rule({Routed::tokens, Routed::rows, Routed::choices}, {Routed::rows});
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(
        *this, inputs.size() == 3 && is_floating(inputs[0].dtype) && inputs[0].shape.rank() == 2,
        "a floating matrix and its indices are expected");
    TESSERA_EXPECT(*this,
                   inputs[1].dtype == DType::i32 && inputs[2].dtype == DType::i32 &&
                       inputs[2].shape.rank() == 2 && inputs[2].shape[0] == inputs[0].shape[0] &&
                       inputs[1].shape.rank() == 1,
                   "indices {} and {} for tokens {}", inputs[1].shape.text(),
                   inputs[2].shape.text(), inputs[0].shape.text());
    return {{{inputs[1].shape[0], inputs[0].shape[1]}, inputs[0].dtype}};
  }

  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> output_gradients) const override {
    if (!output_gradients[0]) return std::vector<Value>(self.inputs.size());
    const DType dtype = builder.spec(self.inputs[0]).dtype;
    const auto sum = std::make_shared<GatherTokensGradient>(dtype);
    return {builder.apply_single(sum, {output_gradients[0], self.inputs[2]}), Value{}, Value{}};
  }

  Cost cost(std::span<const Spec>, std::span<const Spec> outputs) const override {
    return {.bytes = 2.0 * static_cast<double>(outputs[0].bytes())};
  }

  void run(const Execution& execution) const override {
    const Tensor& x = execution.inputs[0];
    const Tensor& rows = execution.outputs[0];
    if (execution.stream != nullptr) {
      return on_device(execution, [&]<typename Vendor, typename T>(Vendor, T) {
        const RowGather<T> gather{rows.shape()[0], rows.shape()[1], x.pointer<T>(),
                                  execution.inputs[1].pointer<int32_t>(), rows.pointer<T>()};
        gather_rows_device<Vendor>(gather, *execution.stream);
      });
    }
    const int32_t* token_of_row = execution.inputs[1].data<int32_t>();
    const int64_t bytes = x.shape()[1] * dtype_size(x.dtype());
    parallel_each(execution.runtime.threads(), rows_in_use(execution.inputs[1]),
                  row_grain(x.shape()[1]), [&](int64_t r) {
                    std::memcpy(rows.raw() + r * bytes, x.raw() + token_of_row[r] * bytes,
                                static_cast<size_t>(bytes));
                  });
  }
};

/// Writes the gradient of one choice's row, row_gradient = weight · output_gradient, and returns
/// the gradient of its weight, Σ_h row_h · output_gradient_h. `row` and `row_gradient` may be the
/// same memory.
template <typename T>
Compute<T> choice_gradient(const T* row, const T* output_gradient, Compute<T> weight, int64_t width,
                           T* row_gradient) {
  using Wide = Compute<T>;
  Wide dot = 0;
#pragma omp simd reduction(+ : dot)
  for (int64_t h = 0; h < width; ++h) {
    dot += static_cast<Wide>(row[h]) * static_cast<Wide>(output_gradient[h]);
  }
  // A loop of its own, because the simd pragma would keep stores of bf16 from being vectorised.
  for (int64_t h = 0; h < width; ++h) {
    row_gradient[h] = static_cast<T>(weight * static_cast<Wide>(output_gradient[h]));
  }
  return dot;
}

/// inputs: those of ReduceExperts, then the gradient of its result [tokens, hidden]; outputs: the
/// gradients of expert_output [rows, hidden] and of the weights [tokens, k].
class ReduceExpertsGradient final : public Operation {
 public:
  std::string_view name() const override { return "reduce_experts_gradient"; }

  std::string labels(std::span<const Spec>) const override {
    return "r! c, n! k!, r!, n! k!, ~n! c -> r c, n k";
  }
  HandRule hand_rule() const override {
    return routed_rule(
        {Routed::rows, Routed::tokens, Routed::rows, Routed::choices, Routed::tokens},
        {Routed::rows, Routed::tokens});
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(
        *this,
        inputs.size() == 5 &&
            is_like(inputs[4], {{inputs[1].shape[0], inputs[0].shape[1]}, inputs[0].dtype}),
        "the operands of reduce_experts and its gradient are expected");
    return {inputs[0], inputs[1]};
  }
  /// Lets the first output overwrite the rows: a row has one token, and is read before its write.
  int in_place_input(int output) const override { return output == 0 ? 0 : -1; }

  void run(const Execution& execution) const override {
    const std::span<const Tensor> inputs = execution.inputs;
    const auto arguments = [&]<typename T>(T) -> RowSumGradient<T> {
      return {.tokens = inputs[1].shape()[0],
              .k = inputs[1].shape()[1],
              .width = inputs[0].shape()[1],
              .rows = inputs[0].pointer<T>(),
              .weights = inputs[1].pointer<Compute<T>>(),
              .row_of_choice = inputs[3].pointer<int32_t>(),
              .result_gradient = inputs[4].pointer<T>(),
              .rows_gradient = execution.outputs[0].pointer<T>(),
              .weights_gradient = execution.outputs[1].pointer<Compute<T>>()};
    };
    const auto kernel = [&](const auto& sum) { propagate(sum, execution.runtime.threads()); };
    run_kernel(
        execution, inputs[0].dtype(), arguments,
        [&]<typename Vendor>(Vendor, const auto& sum) {
          sum_rows_gradient_device<Vendor>(sum, *execution.stream);
        },
        kernel, kernel);
  }

 private:
  template <typename T>
  static void propagate(const RowSumGradient<T>& sum, int threads) {
    const int64_t grain = row_grain(sum.k * sum.width);
    parallel_ranges(threads, sum.tokens, grain, [=](int64_t begin, int64_t end, int) {
      for (int64_t i = begin * sum.k; i < end * sum.k; ++i) {
        sum.weights_gradient[i] = 0;
        if (sum.row_of_choice[i] < 0) continue;
        const int64_t row_begin = sum.row_of_choice[i] * sum.width;
        sum.weights_gradient[i] =
            choice_gradient(sum.rows + row_begin, sum.result_gradient + i / sum.k * sum.width,
                            sum.weights[i], sum.width, sum.rows_gradient + row_begin);
      }
    });
  }
};

/// inputs: expert_output [rows, hidden], weights [tokens, k], input_indices i32 [rows],
/// output_indices i32 [tokens, k]; output [tokens, hidden]. No kernel reads input_indices: their
/// type shows that the rows and the choices are of one exchange.
class ReduceExperts final : public Operation {
 public:
  std::string_view name() const override { return "reduce_experts"; }

  std::string labels(std::span<const Spec>) const override {
    return "~r! c, n! k!, r!, n! k! -> n c";
  }
  HandRule hand_rule() const override {
    return routed_rule({Routed::rows, Routed::tokens, Routed::rows, Routed::choices},
                       {Routed::tokens});
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this,
                   inputs.size() == 4 && is_floating(inputs[0].dtype) &&
                       inputs[0].shape.rank() == 2 &&
                       inputs[1].dtype == accumulation_dtype(inputs[0].dtype),
                   "routed rows, weights in their accumulation type and indices are expected");
    TESSERA_EXPECT(*this,
                   inputs[2].dtype == DType::i32 && inputs[3].dtype == DType::i32 &&
                       inputs[3].shape == inputs[1].shape &&
                       inputs[2].shape == Shape({inputs[0].shape[0]}),
                   "weights {} and indices {} and {} for routed rows {}", inputs[1].shape.text(),
                   inputs[2].shape.text(), inputs[3].shape.text(), inputs[0].shape.text());
    return {{{inputs[1].shape[0], inputs[0].shape[1]}, inputs[0].dtype}};
  }

  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> output_gradients) const override {
    if (!output_gradients[0]) return std::vector<Value>(self.inputs.size());
    std::vector<Value> inputs = self.inputs;
    inputs.push_back(cast(builder, output_gradients[0], builder.spec(self.inputs[0]).dtype));
    const std::vector<Value> gradients =
        builder.apply(std::make_shared<ReduceExpertsGradient>(), std::move(inputs));
    return {gradients[0], gradients[1], Value{}, Value{}};
  }

  void run(const Execution& execution) const override {
    sum_routed_rows(execution, execution.inputs[0], execution.inputs[3], &execution.inputs[1],
                    execution.outputs[0]);
  }
};

}  // namespace

Value gather_tokens(Builder& builder, Value x, const TokenIndices& indices) {
  return builder.apply_single(std::make_shared<GatherTokens>(),
                              {x, indices.input_indices, indices.output_indices});
}

Value reduce_experts(Builder& builder, Value expert_output, Value weights,
                     const TokenIndices& indices) {
  return builder.apply_single(
      std::make_shared<ReduceExperts>(),
      {expert_output, weights, indices.input_indices, indices.output_indices});
}

}  // namespace tessera
