#include <limits>
#include <numeric>

#include "ops/moe/exchange_operation.h"
#include "ops/moe/row_bound.h"
#include "ops/support.h"
#include "tensor/alignment.h"

namespace tessera {
namespace {

/// input: offsets i32 [experts + 1] of the rows that are sent; outputs: RowExchange::received and
/// RowExchange::offsets.
class ExchangeCounts final : public ExchangeOperation {
 public:
  using ExchangeOperation::ExchangeOperation;
  std::string_view name() const override { return "exchange_counts"; }

  std::string labels(std::span<const Spec>) const override { return "f! -> E s, E"; }
  HandRule hand_rule() const override {
    return exchange_rule(options(), {Side::sent}, {Side::received, Side::received});
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this,
                   inputs.size() == 1 && inputs[0].dtype == DType::i32 &&
                       inputs[0].shape == Shape({experts() + 1}),
                   "offsets of {} experts are expected", experts());
    TESSERA_EXPECT(*this, options().bound.rows <= std::numeric_limits<int32_t>::max(),
                   "{} rows do not fit 32-bit offsets", options().bound.rows);
    return {{{options().local_experts, ranks()}, DType::i32},
            {{options().local_experts + 1}, DType::i32}};
  }
  Cost cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const override {
    const auto bytes = static_cast<double>(experts() * dtype_size(DType::i32));
    return cost_of_sending(bytes, inputs, outputs);
  }
  int64_t workspace_bytes(const Target&, std::span<const Spec>) const override {
    return 2 * aligned_bytes(experts() * dtype_size(DType::i32));
  }

  void run(const Execution& execution) const override {
    const Shape shape{ranks(), options().local_experts};
    const auto half = static_cast<int64_t>(execution.workspace.size()) / 2;
    const Tensor sent = Tensor::wrap(execution.workspace.data(), shape, DType::i32);
    const Tensor received = Tensor::wrap(execution.workspace.data() + half, shape, DType::i32);
    const int32_t* offsets = execution.inputs[0].data<int32_t>();
    for (int64_t e = 0; e < experts(); ++e) sent.data<int32_t>()[e] = offsets[e + 1] - offsets[e];
    execution.group().all_to_all(execution.name, sent, received);
    const std::span<const int32_t> came = received.values<int32_t>();
    require_row_bound(execution, options().bound,
                      std::accumulate(came.begin(), came.end(), int64_t{0}));
    int32_t row = 0;  // does not overflow: infer() checks the bound
    execution.outputs[1].data<int32_t>()[0] = 0;
    for (int64_t e = 0; e < options().local_experts; ++e) {
      for (int64_t rank = 0; rank < ranks(); ++rank) {
        const int32_t count = received.data<int32_t>()[rank * options().local_experts + e];
        execution.outputs[0].data<int32_t>()[e * ranks() + rank] = count;
        row += count;
      }
      execution.outputs[1].data<int32_t>()[e + 1] = row;
    }
  }
};

}  // namespace

RowExchange exchange_counts(Builder& builder, Value offsets, const ExchangeOptions& options) {
  const int ranks = builder.program().mesh().size(options.axis);
  if (ranks == 1) {
    return {options, offsets, offsets, exchange_in_place(builder, offsets, options, Side::sent)};
  }
  const std::vector<Value> outputs =
      builder.apply(std::make_shared<ExchangeCounts>(options, ranks), {offsets});
  // These few numbers serve for all exchanges of the layer, even if the layer is recomputed.
  for (const Value output : outputs) builder.keep(output, Keep::layer);
  return {options, offsets, outputs[0], outputs[1]};
}

}  // namespace tessera
