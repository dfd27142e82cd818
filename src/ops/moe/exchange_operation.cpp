#include "ops/moe/exchange_operation.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "ops/moe/routed_types.h"
#include "ops/moe/row_bound.h"
#include "ops/support.h"

namespace tessera {
namespace {

class ExchangeInPlace final : public Operation {
 public:
  ExchangeInPlace(const ExchangeOptions& options, Side from) : options_(options), from_(from) {}
  std::string_view name() const override { return "exchange_in_place"; }

  std::string labels(std::span<const Spec> inputs) const override {
    return inputs[0].shape.rank() == 1 ? "~r! -> q" : "~r! c -> q c";
  }
  HandRule hand_rule() const override {
    return exchange_rule(options_, {from_}, {from_ == Side::sent ? Side::received : Side::sent});
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override { return {inputs[0]}; }
  std::vector<Value> gradient(Builder& builder, const Node&,
                              std::span<const Value> output_gradients) const override {
    if (!output_gradients[0]) return {Value{}};
    const Side back = from_ == Side::sent ? Side::received : Side::sent;
    return {exchange_in_place(builder, output_gradients[0], options_, back)};
  }
  Cost cost(std::span<const Spec>, std::span<const Spec>) const override { return {}; }
  std::optional<View> view(int) const override { return View{.retyped = true}; }
  void run(const Execution&) const override {}

 private:
  ExchangeOptions options_;
  Side from_;
};

}  // namespace

HandRule exchange_rule(const ExchangeOptions& options, std::vector<Side> inputs,
                       std::vector<Side> outputs) {
  return
      [options, inputs = std::move(inputs), outputs = std::move(outputs)](
          Axis axis, std::span<const TypeOnAxis> types) -> std::optional<std::vector<TypeOnAxis>> {
        if (std::ranges::none_of(types, splits_rows) && axis != options.axis) return std::nullopt;
        const auto expected = [&](Side side) {
          if (side == Side::sent) return rows_of_exchange(options.sent_identity);
          return axis == options.axis ? sharded(0) : rows_of_exchange(options.received_identity);
        };
        for (size_t k = 0; k < inputs.size(); ++k) {
          const TypeOnAxis type = expected(inputs[k]);
          if (types[k].placement == type.placement && types[k].dim == 0 &&
              types[k].pieces == type.pieces) {
            continue;
          }
          throw DistributionError(fmt::format("operand {}: expected {}", k, type.text()));
        }
        std::vector<TypeOnAxis> result;
        for (const Side side : outputs) result.push_back(expected(side));
        return result;
      };
}

void ExchangeOperation::require_runnable(Runtime& runtime, std::span<const Spec>) const {
  refuse_sent_rows_on_device(runtime, name());
}

Cost ExchangeOperation::cost_of_sending(double bytes, std::span<const Spec> inputs,
                                        std::span<const Spec> outputs) const {
  return {.bytes = operand_bytes(inputs, outputs),
          .wire = {{.axes = {options_.axis}, .bytes = bytes * (ranks_ - 1) / ranks_}}};
}

Value exchange_in_place(Builder& builder, Value rows, const ExchangeOptions& options, Side from) {
  const Value result =
      builder.apply_single(std::make_shared<ExchangeInPlace>(options, from), {rows});
  const bool are_rows = is_floating(builder.spec(rows).dtype);
  if (from == Side::sent && are_rows) builder.run_time_rows(result);
  return result;
}

}  // namespace tessera
