#include "ops/router/balance_counts.h"
#include "ops/router/split_tokens.h"
#include "ops/support.h"

namespace tessera {
namespace {

/// input: indices i32 [tokens, k]; output: i32 [sets, experts].
class SetCounts final : public Operation {
 public:
  SetCounts(int64_t experts, int64_t sets) : experts_(experts), sets_(sets) {}
  std::string_view name() const override { return "set_counts"; }

  std::string labels(std::span<const Spec>) const override { return "(s n) k -> s E"; }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(
        *this, inputs.size() == 1 && inputs[0].dtype == DType::i32 && inputs[0].shape.rank() == 2,
        "one i32 matrix [tokens, k] is expected");
    TESSERA_EXPECT(*this, sets_ > 0 && inputs[0].shape[0] % sets_ == 0, "{} tokens in {} sets",
                   inputs[0].shape[0], sets_);
    return {{{sets_, experts_}, DType::i32}};
  }
  void require_runnable(Runtime& runtime, std::span<const Spec>) const override {
    if (runtime.accelerator() == nullptr) return;
    throw Error(
        "{}: the tokens of one of several ranks are counted on the processor only; set "
        "run.device = \"cpu\" or model.balance_tokens = \"micro_batch\"",
        name());
  }

  void run(const Execution& execution) const override {
    const std::span<const int32_t> indices = execution.inputs[0].values<int32_t>();
    const std::span<int32_t> counts = execution.outputs[0].values<int32_t>();
    std::ranges::fill(counts, 0);
    // counts[set, e] = the number of the set's choices of expert e
    const size_t each = indices.size() / static_cast<size_t>(sets_);
    for (size_t i = 0; i < indices.size(); ++i) {
      const auto set = static_cast<int64_t>(i / each);
      if (indices[i] < 0 || indices[i] >= experts_) continue;
      ++counts[static_cast<size_t>(set * experts_ + indices[i])];
    }
  }

 private:
  int64_t experts_;
  int64_t sets_;
};

}  // namespace

Value set_counts(Builder& builder, Value indices, int64_t experts, int64_t sets) {
  const Value own = builder.apply_single(std::make_shared<SetCounts>(experts, sets), {indices});
  // On an axis that splits the sets, ranks have different sets, so nothing is summed.
  return sum_of_ranks(builder, own, {Placement::invariant, Placement::sharded});
}

}  // namespace tessera
