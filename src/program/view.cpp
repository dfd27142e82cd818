#include "program/view.h"

#include <cstring>

#include "base/error.h"

namespace tessera {
namespace {

/// The gradient of a view. Input: the gradient of the part. Output: the gradient of the whole, zero
/// outside the part.
class ViewGradient final : public Operation {
 public:
  ViewGradient(int64_t first, const Shape& whole) : first_(first), whole_(whole) {}
  std::string_view name() const override { return "view_gradient"; }

  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    return {{whole_, inputs[0].dtype, inputs[0].distribution}};
  }
  Cost cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const override {
    return {.bytes = static_cast<double>(inputs[0].bytes() + outputs[0].bytes())};
  }
  void run(const Execution& execution) const override {
    const Tensor& part = execution.inputs[0];
    const Tensor& whole = execution.outputs[0];
    whole.fill_zero();
    std::memcpy(whole.raw() + first_ * dtype_size(part.dtype()), part.raw(),
                static_cast<size_t>(part.bytes()));
  }

 private:
  int64_t first_;
  Shape whole_;
};

class ViewOperation final : public Operation {
 public:
  ViewOperation(int64_t first, const Shape& shape, DType dtype)
      : first_(first), shape_(shape), byte_offset_(first * dtype_size(dtype)) {}
  std::string_view name() const override { return "view"; }

  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    const Spec& whole = inputs[0];
    TESSERA_CHECK(first_ >= 0 && first_ + shape_.elements() <= whole.shape.elements(),
                  "view: {} at element {} of {}", shape_.text(), first_, whole.shape.text());
    return {{shape_, whole.dtype, whole.distribution}};
  }
  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> of_outputs) const override {
    return {builder.apply_single(
        std::make_shared<ViewGradient>(first_, builder.spec(self.inputs[0]).shape),
        {of_outputs[0]})};
  }
  bool takes_wide_gradients() const override { return true; }
  Cost cost(std::span<const Spec>, std::span<const Spec>) const override { return {}; }
  std::optional<View> view(int) const override { return View{0, byte_offset_}; }
  void run(const Execution&) const override {}

 private:
  int64_t first_;
  Shape shape_;
  int64_t byte_offset_;
};

}  // namespace

Value view(Builder& builder, Value whole, int64_t first, const Shape& shape) {
  return builder.apply_single(
      std::make_shared<ViewOperation>(first, shape, builder.spec(whole).dtype), {whole});
}

}  // namespace tessera
