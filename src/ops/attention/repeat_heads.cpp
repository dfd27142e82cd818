#include "ops/attention/repeat_heads.h"

#include <algorithm>

#include "ops/attention/repeat_heads_kernels.h"
#include "ops/support.h"

namespace tessera {
namespace {

/// Writes to[head, copy, i] = from[head, i] for all copies of a head.
template <typename T>
void repeat_head(const HeadCopies<T>& copies, int64_t head) {
  const int64_t head_dim = copies.head_dim;
  T* const to = copies.to + head * copies.times * head_dim;
  for (int64_t copy = 0; copy < copies.times; ++copy) {
    std::copy_n(copies.from + head * head_dim, head_dim, to + copy * head_dim);
  }
}

/// Writes to[head, i] = sum_copy from[head, copy, i].
template <typename T>
void add_copies(const HeadCopies<T>& copies, int64_t head) {
  const T* const from = copies.from + head * copies.times * copies.head_dim;
  T* const to = copies.to + head * copies.head_dim;
  for (int64_t i = 0; i < copies.head_dim; ++i) {
    Compute<T> sum = 0;
    for (int64_t copy = 0; copy < copies.times; ++copy) {
      sum += static_cast<Compute<T>>(from[copy * copies.head_dim + i]);
    }
    to[i] = static_cast<T>(sum);
  }
}

/// input: x [tokens, heads * head_dim]. output: [tokens, heads * times * head_dim]. If `sums`, the
/// reverse: it is the gradient of the repetition, and sums the copies.
class RepeatHeads final : public Operation {
 public:
  RepeatHeads(int64_t head_dim, int64_t times, bool sums)
      : head_dim_(head_dim), times_(times), sums_(sums) {}
  std::string_view name() const override {
    return sums_ ? "repeat_heads_gradient" : "repeat_heads";
  }
  std::string labels(std::span<const Spec>) const override {
    return sums_ ? "~t (g r! d!) -> t (g d)" : "~t (g d!) -> t (g r d)";
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(
        *this, inputs.size() == 1 && is_floating(inputs[0].dtype) && inputs[0].shape.rank() == 2,
        "x [tokens, heads * head_dim] is needed");
    const int64_t columns = inputs[0].shape[1];
    TESSERA_EXPECT(
        *this,
        head_dim_ > 0 && times_ > 0 && columns % (sums_ ? times_ * head_dim_ : head_dim_) == 0,
        "rows of {} do not divide into {} heads of {}", columns, times_, head_dim_);
    return {{{inputs[0].shape[0], sums_ ? columns / times_ : columns * times_}, inputs[0].dtype}};
  }
  std::vector<Value> gradient(Builder& builder, const Node&,
                              std::span<const Value> output_gradients) const override {
    return {builder.apply_single(std::make_shared<RepeatHeads>(head_dim_, times_, !sums_),
                                 {output_gradients[0]})};
  }
  bool cheap_to_repeat() const override { return !sums_; }
  void run(const Execution& execution) const override {
    if (execution.stream != nullptr) {
      return on_device(execution, [&]<typename Vendor, typename T>(Vendor, T) {
        repeat_heads_device<Vendor>(head_copies<T>(execution), sums_, *execution.stream);
      });
    }
    dispatch_floating(execution.inputs[0].dtype(), [&]<typename T>(T) {
      const HeadCopies<T> copies = head_copies<T>(execution);
      parallel_each(execution.runtime.threads(), copies.heads, row_grain(head_dim_ * times_),
                    [copies, sums = sums_](int64_t head) {
                      sums ? add_copies(copies, head) : repeat_head(copies, head);
                    });
    });
  }

 private:
  template <typename T>
  HeadCopies<T> head_copies(const Execution& execution) const {
    const Tensor &from = execution.inputs[0], &to = execution.outputs[0];
    return {.heads = (sums_ ? to : from).elements() / head_dim_,
            .head_dim = head_dim_,
            .times = times_,
            .from = from.pointer<T>(),
            .to = to.pointer<T>()};
  }

  int64_t head_dim_;
  int64_t times_;
  bool sums_;
};

}  // namespace

Value repeat_heads(Builder& builder, Value x, int64_t head_dim, int64_t times) {
  return builder.apply_single(std::make_shared<RepeatHeads>(head_dim, times, false), {x});
}

}  // namespace tessera
