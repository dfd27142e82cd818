#include "ops/moe/exchange.h"

#include <cstring>

#include <fmt/format.h>

#include "ops/moe/routed_types.h"
#include "ops/moe/row_bound.h"
#include "ops/moe/token_rows.h"
#include "ops/support.h"
#include "tensor/alignment.h"

namespace tessera {
namespace {

/// On which side of an exchange an operand is.
enum class Side : uint8_t { sent, received };

/// The rule of the exchange's operations: rows that are sent vary over all axes, and those that
/// are received are split by experts over the axis of the exchange and vary over the others.
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

/// What all operations of an exchange over several ranks share.
class ExchangeOperation : public Operation {
 public:
  explicit ExchangeOperation(ExchangeOptions options, int ranks)
      : options_(std::move(options)), ranks_(ranks) {}
  Lane lane() const override { return Lane::network; }
  void require_runnable(Runtime& runtime, std::span<const Spec>) const override {
    refuse_experts_on_device(runtime, name());
  }

 protected:
  int64_t experts() const { return options_.local_experts * ranks_; }
  Communicator& group(const Execution& execution) const {
    return execution.runtime.groups().over(std::span(&options_.axis, 1), "network");
  }
  /// The cost of sending an array of which each rank gets an equal part.
  Cost cost_of_sending(double bytes, std::span<const Spec> inputs,
                       std::span<const Spec> outputs) const {
    return {.bytes = operand_bytes(inputs, outputs),
            .wire = {{.axes = {options_.axis}, .bytes = bytes * (ranks_ - 1) / ranks_}}};
  }

  const ExchangeOptions options_;
  const int ranks_;
};

/// input: offsets i32 [experts + 1] of the rows that are sent; outputs: RowExchange::received and
/// RowExchange::offsets.
class ExchangeCounts final : public ExchangeOperation {
 public:
  using ExchangeOperation::ExchangeOperation;
  std::string_view name() const override { return "exchange_counts"; }

  std::string labels(std::span<const Spec>) const override { return "f! -> E s, E"; }
  HandRule hand_rule() const override {
    return exchange_rule(options_, {Side::sent}, {Side::received, Side::received});
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this,
                   inputs.size() == 1 && inputs[0].dtype == DType::i32 &&
                       inputs[0].shape == Shape({experts() + 1}),
                   "offsets of {} experts are expected", experts());
    return {{{options_.local_experts, ranks_}, DType::i32},
            {{options_.local_experts + 1}, DType::i32}};
  }
  Cost cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const override {
    const auto bytes = static_cast<double>(experts() * dtype_size(DType::i32));
    return cost_of_sending(bytes, inputs, outputs);
  }
  int64_t workspace_bytes(const Target&, std::span<const Spec>) const override {
    return 2 * aligned_bytes(experts() * dtype_size(DType::i32));
  }

  void run(const Execution& execution) const override {
    const Shape shape{ranks_, options_.local_experts};
    const auto half = static_cast<int64_t>(execution.workspace.size()) / 2;
    const Tensor sent = Tensor::wrap(execution.workspace.data(), shape, DType::i32);
    const Tensor received = Tensor::wrap(execution.workspace.data() + half, shape, DType::i32);
    const int32_t* offsets = execution.inputs[0].data<int32_t>();
    for (int64_t e = 0; e < experts(); ++e) sent.data<int32_t>()[e] = offsets[e + 1] - offsets[e];
    group(execution).all_to_all(execution.name, sent, received);
    int64_t row = 0;
    execution.outputs[1].data<int32_t>()[0] = 0;
    for (int64_t e = 0; e < options_.local_experts; ++e) {
      for (int64_t rank = 0; rank < ranks_; ++rank) {
        const int32_t count = received.data<int32_t>()[rank * options_.local_experts + e];
        execution.outputs[0].data<int32_t>()[e * ranks_ + rank] = count;
        row += count;
      }
      execution.outputs[1].data<int32_t>()[e + 1] = static_cast<int32_t>(row);
    }
    require_row_bound(execution, options_.bound, row);
  }
};

/// Rows of one local expert from one rank.
struct RowsFromRank {
  int64_t expert_order;  ///< the first one's place if the experts follow each other
  int64_t rank_order;    ///< its place if the ranks follow each other, as the rows come and go
  int64_t count;
};

/// inputs: rows, then RowExchange::sent, received and offsets; output: rows on the other side.
class MoveRows final : public ExchangeOperation {
 public:
  MoveRows(const ExchangeOptions& options, int ranks, Side from)
      : ExchangeOperation(options, ranks), from_(from) {}

  /// Appends a node. How many rows are received is known only at run time.
  static Value apply(Builder& builder, const std::shared_ptr<const MoveRows>& move,
                     std::vector<Value> inputs) {
    const Value output = builder.apply_single(move, std::move(inputs));
    const RowBound& bound = move->options_.bound;
    if (move->to() == Side::received) {
      builder.rows(output, {.expected = bound.balanced, .key = bound.key});
    }
    return output;
  }

  std::string_view name() const override {
    return from_ == Side::sent ? "exchange_rows" : "return_rows";
  }

  std::string labels(std::span<const Spec>) const override { return "~r! c, f!, E! s!, E! -> q c"; }
  HandRule hand_rule() const override {
    return exchange_rule(options_, {from_, Side::sent, Side::received, Side::received}, {to()});
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == 4 && is_floating(inputs[0].dtype),
                   "rows and the numbers of an exchange are expected");
    TESSERA_EXPECT(*this,
                   inputs[0].shape.rank() == 2 && inputs[0].shape[0] == rows_of(from_) &&
                       inputs[1].shape == Shape({experts() + 1}) &&
                       inputs[2].shape == Shape({options_.local_experts, ranks_}) &&
                       inputs[3].shape == Shape({options_.local_experts + 1}),
                   "rows {} with offsets {} and {} and counts {}", inputs[0].shape.text(),
                   inputs[1].shape.text(), inputs[3].shape.text(), inputs[2].shape.text());
    return {{{rows_of(to()), inputs[0].shape[1]}, inputs[0].dtype}};
  }

  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> of_outputs) const override {
    std::vector<Value> result(self.inputs.size());
    if (!of_outputs[0]) return result;
    std::vector<Value> inputs = self.inputs;
    inputs[0] = of_outputs[0];
    result[0] = apply(builder, std::make_shared<MoveRows>(options_, ranks_, to()), inputs);
    return result;
  }

  /// Counts an even load.
  Cost cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const override {
    const Spec& sent = from_ == Side::sent ? inputs[0] : outputs[0];
    return cost_of_sending(static_cast<double>(sent.bytes()), inputs, outputs);
  }
  /// Rows of a single expert come in its order.
  int64_t workspace_bytes(const Target&, std::span<const Spec> inputs) const override {
    if (options_.local_experts == 1) return 0;
    return options_.bound.rows * inputs[0].shape[1] * dtype_size(inputs[0].dtype);
  }

  void run(const Execution& execution) const override {
    const std::vector<RowsFromRank> blocks = blocks_of(execution.inputs[2].values<int32_t>());
    const std::vector<int64_t> sent = rows_sent(execution.inputs[1].values<int32_t>());
    const std::vector<int64_t> received = rows_received(execution.inputs[2].values<int32_t>());
    const Tensor& from = execution.inputs[0];
    const Tensor& to = execution.outputs[0];
    if (from_ == Side::sent) {
      const Tensor come = options_.local_experts == 1 ? to : staged(execution);
      group(execution).all_to_all_rows(execution.name, from, sent, come, received);
      if (options_.local_experts > 1) copy_blocks(execution, blocks, come, to);
      clear_rows_from(execution.runtime, to, execution.inputs[3].values<int32_t>().back());
    } else {
      const Tensor go = options_.local_experts == 1 ? from : staged(execution);
      if (options_.local_experts > 1) copy_blocks(execution, blocks, from, go);
      group(execution).all_to_all_rows(execution.name, go, received, to, sent);
      clear_rows_from(execution.runtime, to, execution.inputs[1].values<int32_t>().back());
    }
  }

 private:
  Side to() const { return from_ == Side::sent ? Side::received : Side::sent; }
  int64_t rows_of(Side side) const {
    return side == Side::sent ? options_.sent_rows : options_.bound.rows;
  }

  Tensor staged(const Execution& execution) const {
    const Tensor& rows = execution.inputs[0];
    return Tensor::wrap(execution.workspace.data(), {options_.bound.rows, rows.shape()[1]},
                        rows.dtype());
  }

  /// How many rows go to each rank of those that this one sends.
  std::vector<int64_t> rows_sent(std::span<const int32_t> offsets) const {
    std::vector<int64_t> rows;
    for (int64_t rank = 0; rank < ranks_; ++rank) {
      const auto first = static_cast<size_t>(rank * options_.local_experts);
      rows.push_back(offsets[first + static_cast<size_t>(options_.local_experts)] - offsets[first]);
    }
    return rows;
  }

  /// How many rows come from each rank; counts are [local experts, ranks].
  std::vector<int64_t> rows_received(std::span<const int32_t> counts) const {
    std::vector<int64_t> rows(static_cast<size_t>(ranks_));
    for (size_t i = 0; i < counts.size(); ++i) rows[i % rows.size()] += counts[i];
    return rows;
  }

  /// The blocks of rows that a rank receives, rank by rank.
  std::vector<RowsFromRank> blocks_of(std::span<const int32_t> counts) const {
    const auto ranks = static_cast<size_t>(ranks_);
    std::vector<int64_t> places(counts.size());
    int64_t place = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      places[i] = place;
      place += counts[i];
    }
    std::vector<RowsFromRank> blocks;
    place = 0;
    for (size_t rank = 0; rank < ranks; ++rank) {
      for (size_t at = rank; at < counts.size(); at += ranks) {
        blocks.push_back({places[at], place, counts[at]});
        place += counts[at];
      }
    }
    return blocks;
  }

  /// Puts rows from the order of the ranks into that of the experts, or back.
  void copy_blocks(const Execution& execution, const std::vector<RowsFromRank>& blocks,
                   const Tensor& from, const Tensor& to) const {
    const int64_t row_bytes = from.shape()[1] * dtype_size(from.dtype());
    const bool into_experts = from_ == Side::sent;
    parallel_items(execution.runtime.threads(), std::ssize(blocks), [&](int64_t item, int) {
      const RowsFromRank& block = blocks[static_cast<size_t>(item)];
      const int64_t source = into_experts ? block.rank_order : block.expert_order;
      const int64_t target = into_experts ? block.expert_order : block.rank_order;
      std::memcpy(to.raw() + target * row_bytes, from.raw() + source * row_bytes,
                  static_cast<size_t>(block.count * row_bytes));
    });
  }

  Side from_;
};

/// The exchange among one rank: the same memory under the type of the other side.
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
                              std::span<const Value> of_outputs) const override {
    if (!of_outputs[0]) return {Value{}};
    const Side back = from_ == Side::sent ? Side::received : Side::sent;
    return {
        builder.apply_single(std::make_shared<ExchangeInPlace>(options_, back), {of_outputs[0]})};
  }
  Cost cost(std::span<const Spec>, std::span<const Spec>) const override { return {}; }
  std::optional<View> view(int) const override { return View{.retyped = true}; }
  void run(const Execution&) const override {}

 private:
  ExchangeOptions options_;
  Side from_;
};

Value move_rows(Builder& builder, Value rows, const RowExchange& exchange, Side from) {
  const ExchangeOptions& options = exchange.options;
  const int ranks = builder.program().mesh().size(options.axis);
  if (ranks == 1) {
    return builder.apply_single(std::make_shared<ExchangeInPlace>(options, from), {rows});
  }
  return MoveRows::apply(builder, std::make_shared<MoveRows>(options, ranks, from),
                         {rows, exchange.sent, exchange.received, exchange.offsets});
}

}  // namespace

RowExchange exchange_counts(Builder& builder, Value offsets, const ExchangeOptions& options) {
  const int ranks = builder.program().mesh().size(options.axis);
  if (ranks == 1) {
    return {
        options, offsets, offsets,
        builder.apply_single(std::make_shared<ExchangeInPlace>(options, Side::sent), {offsets})};
  }
  const std::vector<Value> outputs =
      builder.apply(std::make_shared<ExchangeCounts>(options, ranks), {offsets});
  return {options, offsets, outputs[0], outputs[1]};
}

Value exchange_rows(Builder& builder, Value rows, const RowExchange& exchange) {
  return move_rows(builder, rows, exchange, Side::sent);
}

Value return_rows(Builder& builder, Value rows, const RowExchange& exchange) {
  return move_rows(builder, rows, exchange, Side::received);
}

}  // namespace tessera
