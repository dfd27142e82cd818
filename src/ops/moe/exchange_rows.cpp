#include <cstring>

#include "ops/moe/exchange.h"
#include "ops/moe/exchange_operation.h"
#include "ops/moe/token_rows.h"
#include "ops/support.h"

namespace tessera {
namespace {

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
    const RowBound& bound = move->options().bound;
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
    return exchange_rule(options(), {from_, Side::sent, Side::received, Side::received}, {to()});
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == 4 && is_floating(inputs[0].dtype),
                   "rows and the numbers of an exchange are expected");
    TESSERA_EXPECT(*this,
                   inputs[0].shape.rank() == 2 && inputs[0].shape[0] == rows_of(from_) &&
                       inputs[1].shape == Shape({experts() + 1}) &&
                       inputs[2].shape == Shape({options().local_experts, ranks()}) &&
                       inputs[3].shape == Shape({options().local_experts + 1}),
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
    result[0] = apply(builder, std::make_shared<MoveRows>(options(), ranks(), to()), inputs);
    return result;
  }

  /// Counts an even load.
  Cost cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const override {
    const Spec& sent = from_ == Side::sent ? inputs[0] : outputs[0];
    return cost_of_sending(static_cast<double>(sent.bytes()), inputs, outputs);
  }
  /// Rows of a single expert come in its order.
  int64_t workspace_bytes(const Target&, std::span<const Spec> inputs) const override {
    if (options().local_experts == 1) return 0;
    return options().bound.rows * inputs[0].shape[1] * dtype_size(inputs[0].dtype);
  }

  void run(const Execution& execution) const override {
    const std::vector<RowsFromRank> blocks = blocks_of(execution.inputs[2].values<int32_t>());
    const std::vector<int64_t> sent = rows_sent(execution.inputs[1].values<int32_t>());
    const std::vector<int64_t> received = rows_received(execution.inputs[2].values<int32_t>());
    const Tensor& from = execution.inputs[0];
    const Tensor& to = execution.outputs[0];
    if (from_ == Side::sent) {
      const Tensor come = options().local_experts == 1 ? to : staged(execution);
      group(execution).all_to_all_rows(execution.name, from, sent, come, received);
      if (options().local_experts > 1) copy_blocks(execution, blocks, come, to);
      clear_rows_from(execution.runtime, to, execution.inputs[3].values<int32_t>().back());
    } else {
      const Tensor go = options().local_experts == 1 ? from : staged(execution);
      if (options().local_experts > 1) copy_blocks(execution, blocks, from, go);
      group(execution).all_to_all_rows(execution.name, go, received, to, sent);
      clear_rows_from(execution.runtime, to, execution.inputs[1].values<int32_t>().back());
    }
  }

 private:
  Side to() const { return from_ == Side::sent ? Side::received : Side::sent; }
  int64_t rows_of(Side side) const {
    return side == Side::sent ? options().sent_rows : options().bound.rows;
  }

  Tensor staged(const Execution& execution) const {
    const Tensor& rows = execution.inputs[0];
    return Tensor::wrap(execution.workspace.data(), {options().bound.rows, rows.shape()[1]},
                        rows.dtype());
  }

  /// How many rows go to each rank of those that this one sends.
  std::vector<int64_t> rows_sent(std::span<const int32_t> offsets) const {
    std::vector<int64_t> rows;
    for (int64_t rank = 0; rank < ranks(); ++rank) {
      const auto first = static_cast<size_t>(rank * options().local_experts);
      rows.push_back(offsets[first + static_cast<size_t>(options().local_experts)] -
                     offsets[first]);
    }
    return rows;
  }

  /// How many rows come from each rank; counts are [local experts, ranks].
  std::vector<int64_t> rows_received(std::span<const int32_t> counts) const {
    std::vector<int64_t> rows(static_cast<size_t>(ranks()));
    for (size_t i = 0; i < counts.size(); ++i) rows[i % rows.size()] += counts[i];
    return rows;
  }

  /// The blocks of rows that a rank receives, rank by rank.
  std::vector<RowsFromRank> blocks_of(std::span<const int32_t> counts) const {
    const auto sources = static_cast<size_t>(ranks());
    std::vector<int64_t> places(counts.size());
    int64_t place = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      places[i] = place;
      place += counts[i];
    }
    std::vector<RowsFromRank> blocks;
    place = 0;
    for (size_t rank = 0; rank < sources; ++rank) {
      for (size_t at = rank; at < counts.size(); at += sources) {
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

Value move_rows(Builder& builder, Value rows, const RowExchange& exchange, Side from) {
  const ExchangeOptions& options = exchange.options;
  const int ranks = builder.program().mesh().size(options.axis);
  if (ranks == 1) return exchange_in_place(builder, rows, options, from);
  return MoveRows::apply(builder, std::make_shared<MoveRows>(options, ranks, from),
                         {rows, exchange.sent, exchange.received, exchange.offsets});
}

}  // namespace

Value exchange_rows(Builder& builder, Value rows, const RowExchange& exchange) {
  return move_rows(builder, rows, exchange, Side::sent);
}

Value return_rows(Builder& builder, Value rows, const RowExchange& exchange) {
  return move_rows(builder, rows, exchange, Side::received);
}

}  // namespace tessera
