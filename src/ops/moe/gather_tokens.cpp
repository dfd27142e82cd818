#include "ops/moe/gather_tokens.h"

#include <cstring>

#include "ops/moe/routed_types.h"
#include "ops/moe/token_rows.h"
#include "ops/moe/token_rows_kernels.h"
#include "ops/support.h"

namespace tessera {
namespace {

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
    sum_rows(execution, execution.inputs[0], execution.inputs[1], nullptr, execution.outputs[0]);
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
    std::vector<Value> result(self.inputs.size());
    if (output_gradients[0]) {
      const DType dtype = builder.spec(self.inputs[0]).dtype;
      result[0] = builder.apply_single(std::make_shared<GatherTokensGradient>(dtype),
                                       {output_gradients[0], self.inputs[2]});
    }
    return result;
  }

  Cost cost(std::span<const Spec>, std::span<const Spec> outputs) const override {
    return {.bytes = 2.0 * static_cast<double>(outputs[0].bytes())};
  }

  void run(const Execution& execution) const override {
    const Tensor& x = execution.inputs[0];
    const Tensor& rows = execution.outputs[0];
    if (execution.stream != nullptr) {
      on_device(execution, [&](auto vendor, auto type) {
        using T = decltype(type);
        const RowGather<T> gather{rows.shape()[0], rows.shape()[1], x.pointer<T>(),
                                  execution.inputs[1].pointer<int32_t>(), rows.pointer<T>()};
        gather_rows_device<decltype(vendor)>(gather, *execution.stream);
      });
      return;
    }
    const int32_t* token_of_row = execution.inputs[1].data<int32_t>();
    const int64_t bytes = x.shape()[1] * dtype_size(x.dtype());
    // rows[r, h] = x[token_of_row[r], h]
    parallel_ranges(execution.runtime.threads(), rows_in_use(execution.inputs[1]),
                    row_grain(x.shape()[1]), [&](int64_t begin, int64_t end, int) {
                      for (int64_t r = begin; r < end; ++r) {
                        std::memcpy(rows.raw() + r * bytes, x.raw() + token_of_row[r] * bytes,
                                    static_cast<size_t>(bytes));
                      }
                    });
  }
};

}  // namespace

Value gather_tokens(Builder& builder, Value x, const TokenIndices& indices) {
  return builder.apply_single(std::make_shared<GatherTokens>(),
                              {x, indices.input_indices, indices.output_indices});
}

}  // namespace tessera
