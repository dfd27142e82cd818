#include "ops/moe/drop_over_capacity.h"

#include "base/words.h"
#include "ops/moe/routed_types.h"
#include "ops/support.h"

namespace tessera {
namespace {

/// input and output: indices i32 [tokens, k].
class DropOverCapacity final : public Operation {
 public:
  DropOverCapacity(int64_t experts, double factor, TokenSet set)
      : experts_(experts), factor_(factor), set_(set) {}
  std::string_view name() const override { return "drop_over_capacity"; }

  std::string labels(std::span<const Spec>) const override { return "n! k! -> n k"; }
  HandRule hand_rule() const override {
    if (set_ == TokenSet::micro_batch) return {};
    return [](Axis, std::span<const TypeOnAxis> types) -> std::optional<std::vector<TypeOnAxis>> {
      if (!splits_rows(types[0])) return std::nullopt;
      return std::vector{types[0]};
    };
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(
        *this, inputs.size() == 1 && inputs[0].dtype == DType::i32 && inputs[0].shape.rank() == 2,
        "one i32 matrix [tokens, k] is expected");
    TESSERA_EXPECT(*this, factor_ > 0, "a capacity factor of {}; it must be positive", factor_);
    return {inputs[0]};
  }
  int64_t workspace_bytes(const Target&, std::span<const Spec>) const override {
    return experts_ * dtype_size(DType::i32);
  }
  int in_place_input(int) const override { return 0; }
  void require_runnable(Runtime& runtime, std::span<const Spec>) const override {
    if (runtime.accelerator() == nullptr) return;
    throw Error(
        "{} on {}: capacities of experts whose tokens several ranks have are counted on the "
        "processor only; set model.capacity_factor = 0 or run.device = \"cpu\"",
        name(), word(runtime.target().device));
  }

  void run(const Execution& execution) const override {
    const Shape& shape = execution.inputs[0].shape();
    const int64_t capacity = expert_capacity(factor_, shape[0], shape[1], experts_);
    auto* choices_of_expert = reinterpret_cast<int32_t*>(execution.workspace.data());  // [experts]
    std::fill_n(choices_of_expert, experts_, 0);
    const int32_t* indices = execution.inputs[0].data<int32_t>();
    int32_t* result = execution.outputs[0].data<int32_t>();
    // result[i] = indices[i], or -1 if `capacity` earlier choices chose the same expert
    for (int64_t i = 0; i < shape.elements(); ++i) {
      const int32_t expert = indices[i];
      const bool is_expert = expert >= 0 && expert < experts_;
      result[i] = is_expert && choices_of_expert[expert]++ < capacity ? expert : -1;
    }
  }

 private:
  int64_t experts_;
  double factor_;
  TokenSet set_;
};

}  // namespace

Value drop_over_capacity(Builder& builder, Value indices, int64_t experts, double factor,
                         TokenSet set) {
  return builder.apply_single(std::make_shared<DropOverCapacity>(experts, factor, set), {indices});
}

}  // namespace tessera
