#include <fmt/format.h>

#include "comm/wire_bytes.h"
#include "ops/collective/convert.h"
#include "ops/collective/move.h"
#include "ops/labels.h"
#include "ops/support.h"

namespace tessera {
namespace {

/// Updated input: this rank's addend, which becomes the sum. The view of it that follows has the
/// type of the sum.
class TakeSum final : public CollectiveOperation {
 public:
  using CollectiveOperation::CollectiveOperation;
  std::string_view name() const override { return "take_sum"; }

  std::string labels(std::span<const Spec> inputs) const override {
    return fmt::format("-> += ?{}", element_labels(inputs[0].shape.rank()));
  }
  std::optional<std::vector<Distribution>> distributions(
      const Mesh&, std::span<const TypedOperand>) const override {
    return std::vector<Distribution>{};
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    CollectiveOperation::infer(inputs);
    return {};
  }
  std::vector<Value> gradient(Builder&, const Node&, std::span<const Value>) const override {
    return {Value{}};
  }
  std::vector<int> updated_inputs() const override { return {0}; }
  void run(const Execution& execution) const override {
    const Tensor& value = execution.inputs[0];
    execution.group->all_reduce(execution.name, value, value);
  }

 protected:
  int64_t sent_bytes(int position, int64_t element_bytes) const override {
    return all_reduce_bytes(move().whole.elements(), move().ranks, position, element_bytes);
  }
};

}  // namespace

Value take_sum(Builder& builder, Value value, std::span<const Axis> axes) {
  if (axes.empty()) return value;
  std::vector<Conversion> conversions;
  for (const Axis axis : axes) conversions.push_back({axis, Placement::partial, invariant()});
  const ValueInfo& info = builder.program().info(value);
  const Mesh& mesh = builder.program().mesh();
  converted(mesh, {info.name, info.spec, info.differentiable}, conversions);  // refuses other types
  const Move move = plan_move(builder.program(), value, conversions);
  if (move.ranks > 1) builder.apply(std::make_shared<TakeSum>(move), {value});
  const Value taken = builder.apply_single(make_retype(std::move(conversions)), {value});
  builder.replace(value, taken);
  return taken;
}

}  // namespace tessera
