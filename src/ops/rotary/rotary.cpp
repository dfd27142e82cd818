#include "ops/rotary/rotary.h"

#include "ops/rotary/rotate.h"

namespace tessera {
namespace {

/// inputs: x [tokens, heads * head_dim], table [tokens, channels]. output: as x.
class Rotary final : public Operation {
 public:
  Rotary(int64_t head_dim, bool inverse) : head_dim_(head_dim), inverse_(inverse) {}
  std::string_view name() const override { return inverse_ ? "rotary_gradient" : "rotary"; }

  std::string labels(std::span<const Spec>) const override { return "~t (h d!), t r! -> t (h d)"; }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this,
                   inputs.size() == 2 && is_floating(inputs[0].dtype) &&
                       inputs[0].shape.rank() == 2 && inputs[1].shape.rank() == 2,
                   "x [tokens, heads * head_dim] and a table [tokens, channels] are needed");
    const Spec& x = inputs[0];
    const Spec& table = inputs[1];
    TESSERA_EXPECT(*this, head_dim_ > 0 && x.shape[1] % head_dim_ == 0,
                   "rows of {} do not divide into heads of {}", x.shape[1], head_dim_);
    TESSERA_EXPECT(
        *this,
        table.shape[0] == x.shape[0] && table.shape[1] % 2 == 0 && table.shape[1] <= head_dim_,
        "a table of {} for x of {} with heads of {}", table.shape.text(), x.shape.text(),
        head_dim_);
    TESSERA_EXPECT(*this, table.dtype == accumulation_dtype(x.dtype), "a table of {} for x of {}",
                   dtype_name(table.dtype), dtype_name(x.dtype));
    return {x};
  }

  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> output_gradients) const override {
    return {builder.apply_single(std::make_shared<Rotary>(head_dim_, !inverse_),
                                 {output_gradients[0], self.inputs[1]}),
            {}};
  }

  int in_place_input(int) const override { return 0; }

  void run(const Execution& execution) const override {
    if (execution.stream != nullptr) {
      return on_device(execution, [&]<typename Vendor, typename T>(Vendor, T) {
        rotary_device<Vendor>(arguments<T>(execution), *execution.stream);
      });
    }
    dispatch_floating(execution.inputs[0].dtype(), [&]<typename T>(T) {
      rotate_on_processor(execution.runtime, arguments<T>(execution));
    });
  }

 private:
  template <typename T>
  RotaryArguments<T> arguments(const Execution& execution) const {
    const Tensor& x = execution.inputs[0];
    const Tensor& table = execution.inputs[1];
    return {.tokens = x.shape()[0],
            .heads = x.shape()[1] / head_dim_,
            .head_dim = head_dim_,
            .channels = table.shape()[1],
            .inverse = inverse_,
            .x = x.pointer<T>(),
            .table = table.pointer<Compute<T>>(),
            .output = execution.outputs[0].pointer<T>()};
  }

  int64_t head_dim_;
  bool inverse_;
};

}  // namespace

Value rotary(Builder& builder, Value x, Value table, int64_t head_dim) {
  return builder.apply_single(std::make_shared<Rotary>(head_dim, false), {x, table});
}

}  // namespace tessera
