#include "ops/attention/repeat_heads.h"

#include <algorithm>

#include "ops/attention/repeat_heads_kernels.h"
#include "ops/support.h"

namespace tessera {
namespace {

/// The base of the repetition of heads and of the sum of their copies.
class HeadOperation : public Operation {
 public:
  HeadOperation(int64_t head_dim, int64_t times) : head_dim_(head_dim), times_(times) {}

 protected:
  /// Checks x, and returns its number of columns divided by `unit`, which must divide it.
  int64_t columns(std::span<const Spec> inputs, int64_t unit) const {
    TESSERA_EXPECT(
        *this, inputs.size() == 1 && is_floating(inputs[0].dtype) && inputs[0].shape.rank() == 2,
        "x [tokens, heads * head_dim] is needed");
    TESSERA_EXPECT(*this, head_dim_ > 0 && times_ > 0 && inputs[0].shape[1] % unit == 0,
                   "rows of {} do not divide into {} heads of {}", inputs[0].shape[1], times_,
                   head_dim_);
    return inputs[0].shape[1] / unit;
  }

  /// Calls `head(copies, index)` for each head, or on a device `launch(vendor, copies, stream)`
  /// once. `single` is the tensor of heads without copies.
  template <typename Head, typename Launch>
  void run_heads(const Execution& execution, const Tensor& single, Head head, Launch launch) const {
    if (execution.stream != nullptr) {
      return on_device(execution, [&]<typename T>(auto vendor, T) {
        launch(vendor, copies<T>(execution, single), *execution.stream);
      });
    }
    dispatch_floating(single.dtype(), [&]<typename T>(T) {
      const auto heads = copies<T>(execution, single);
      parallel_each(execution.runtime.threads(), heads.heads, row_grain(head_dim_ * times_),
                    [=](int64_t index) { head(heads, index); });
    });
  }

  int64_t head_dim_;
  int64_t times_;

 private:
  template <typename T>
  HeadCopies<T> copies(const Execution& execution, const Tensor& single) const {
    return {.heads = single.elements() / head_dim_,
            .head_dim = head_dim_,
            .times = times_,
            .from = execution.inputs[0].pointer<T>(),
            .to = execution.outputs[0].pointer<T>()};
  }
};

/// input: gradient [tokens, heads * times * head_dim]. output: [tokens, heads * head_dim].
class RepeatHeadsGradient final : public HeadOperation {
 public:
  using HeadOperation::HeadOperation;
  std::string_view name() const override { return "repeat_heads_gradient"; }
  std::string labels(std::span<const Spec>) const override { return "~t (g r! d!) -> t (g d)"; }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    const int64_t heads = columns(inputs, times_ * head_dim_);
    return {{{inputs[0].shape[0], heads * head_dim_}, inputs[0].dtype}};
  }
  void run(const Execution& execution) const override {
    run_heads(
        execution, execution.outputs[0],
        [](const auto& heads, int64_t index) { add_copies(heads, index); },
        []<typename Vendor>(Vendor, const auto& heads, Stream& stream) {
          add_head_copies_device<Vendor>(heads, stream);
        });
  }

 private:
  // to[head, i] = sum_copy from[head, copy, i]
  template <typename T>
  static void add_copies(const HeadCopies<T>& heads, int64_t head) {
    const T* const from = heads.from + head * heads.times * heads.head_dim;
    T* const to = heads.to + head * heads.head_dim;
    for (int64_t i = 0; i < heads.head_dim; ++i) {
      Compute<T> sum = 0;
      for (int64_t copy = 0; copy < heads.times; ++copy) {
        sum += static_cast<Compute<T>>(from[copy * heads.head_dim + i]);
      }
      to[i] = static_cast<T>(sum);
    }
  }
};

/// input: x [tokens, heads * head_dim]. output: [tokens, heads * times * head_dim].
class RepeatHeads final : public HeadOperation {
 public:
  using HeadOperation::HeadOperation;
  std::string_view name() const override { return "repeat_heads"; }
  std::string labels(std::span<const Spec>) const override { return "~t (g d!) -> t (g r d)"; }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    const int64_t heads = columns(inputs, head_dim_);
    return {{{inputs[0].shape[0], heads * times_ * head_dim_}, inputs[0].dtype}};
  }
  std::vector<Value> gradient(Builder& builder, const Node&,
                              std::span<const Value> output_gradients) const override {
    return {builder.apply_single(std::make_shared<RepeatHeadsGradient>(head_dim_, times_),
                                 {output_gradients[0]})};
  }
  bool cheap_to_repeat() const override { return true; }
  void run(const Execution& execution) const override {
    run_heads(
        execution, execution.inputs[0],
        [](const auto& heads, int64_t index) { copy(heads, index); },
        []<typename Vendor>(Vendor, const auto& heads, Stream& stream) {
          repeat_heads_device<Vendor>(heads, stream);
        });
  }

 private:
  // to[head, time, i] = from[head, i]
  template <typename T>
  static void copy(const HeadCopies<T>& heads, int64_t head) {
    T* const to = heads.to + head * heads.times * heads.head_dim;
    for (int64_t time = 0; time < heads.times; ++time) {
      std::copy_n(heads.from + head * heads.head_dim, heads.head_dim, to + time * heads.head_dim);
    }
  }
};

}  // namespace

Value repeat_heads(Builder& builder, Value x, int64_t head_dim, int64_t times) {
  return builder.apply_single(std::make_shared<RepeatHeads>(head_dim, times), {x});
}

}  // namespace tessera
