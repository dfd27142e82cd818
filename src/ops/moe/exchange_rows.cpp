#include <cstring>

#include "ops/moe/exchange.h"
#include "ops/moe/exchange_operation.h"
#include "ops/support.h"
#include "tensor/alignment.h"

namespace tessera {
namespace {

/// Rows of one local expert from one rank.
struct RowsFromRank {
  int64_t expert_order;  ///< the index of the first row if the rows are ordered by expert
  int64_t rank_order;    ///< its index if they are ordered by rank, as they are sent and received
  int64_t count;
};

/// inputs: rows, then RowExchange::sent, received and offsets; output: rows on the other side.
class MoveRows final : public ExchangeOperation {
 public:
  MoveRows(const ExchangeOptions& options, int ranks, Side from)
      : ExchangeOperation(options, ranks), from_(from) {}

  /// Appends a node. The number of rows that are received is known only at run time.
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
                              std::span<const Value> output_gradients) const override {
    std::vector<Value> result(self.inputs.size());
    if (!output_gradients[0]) return result;
    std::vector<Value> inputs = self.inputs;
    inputs[0] = output_gradients[0];
    result[0] = apply(builder, std::make_shared<MoveRows>(options(), ranks(), to()), inputs);
    return result;
  }

  /// Assumes an even load.
  Cost cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const override {
    const Spec& sent = from_ == Side::sent ? inputs[0] : outputs[0];
    return cost_of_sending(static_cast<double>(sent.bytes()), inputs, outputs);
  }
  /// Returns the bytes of the numbers of rows, and of the rows in the order of the ranks. The rows
  /// of a single local expert need no copy: the order of the ranks is also its order.
  int64_t workspace_bytes(const Target&, std::span<const Spec> inputs) const override {
    if (options().local_experts == 1) return numbers_bytes();
    return numbers_bytes() +
           options().bound.rows * inputs[0].shape[1] * dtype_size(inputs[0].dtype);
  }

  void run(const Execution& execution) const override {
    const auto count = static_cast<size_t>(ranks());
    auto* numbers = reinterpret_cast<int64_t*>(execution.workspace.data());
    const std::span sent(numbers, count);
    const std::span received(numbers + count, count);
    const std::span blocks(reinterpret_cast<RowsFromRank*>(numbers + 2 * count),
                           static_cast<size_t>(experts()));
    count_sent(execution.inputs[1].values<int32_t>(), sent);
    find_blocks(execution, blocks, received);
    const Tensor& from = execution.inputs[0];
    const Tensor& to = execution.outputs[0];
    if (from_ == Side::sent) {
      const Tensor come = options().local_experts == 1 ? to : staged(execution);
      execution.group().all_to_all_rows(execution.name, from, sent, come, received);
      if (options().local_experts > 1) copy_blocks(execution, blocks, come, to);
    } else {
      const Tensor go = options().local_experts == 1 ? from : staged(execution);
      if (options().local_experts > 1) copy_blocks(execution, blocks, from, go);
      execution.group().all_to_all_rows(execution.name, go, received, to, sent);
    }
  }

 private:
  Side to() const { return from_ == Side::sent ? Side::received : Side::sent; }
  int64_t rows_of(Side side) const {
    return side == Side::sent ? options().sent_rows : options().bound.rows;
  }

  Tensor staged(const Execution& execution) const {
    const Tensor& rows = execution.inputs[0];
    return Tensor::wrap(execution.workspace.data() + numbers_bytes(),
                        {options().bound.rows, rows.shape()[1]}, rows.dtype());
  }

  /// Returns the bytes of the numbers of rows sent to each rank and received from it, and of a
  /// block for each rank and local expert.
  int64_t numbers_bytes() const {
    return aligned_bytes(2 * ranks() * static_cast<int64_t>(sizeof(int64_t)) +
                         experts() * static_cast<int64_t>(sizeof(RowsFromRank)));
  }

  /// Writes the number of rows that this rank sends to each rank.
  void count_sent(std::span<const int32_t> offsets, std::span<int64_t> rows) const {
    const auto local = static_cast<size_t>(options().local_experts);
    for (size_t rank = 0; rank < rows.size(); ++rank) {
      rows[rank] = offsets[(rank + 1) * local] - offsets[rank * local];
    }
  }

  /// Writes the blocks of rows that this rank receives, rank by rank, and the number of rows that
  /// it receives from each rank.
  void find_blocks(const Execution& execution, std::span<RowsFromRank> blocks,
                   std::span<int64_t> received) const {
    const std::span<const int32_t> counts = execution.inputs[2].values<int32_t>();
    const std::span<const int32_t> offsets = execution.inputs[3].values<int32_t>();
    const auto local = static_cast<size_t>(options().local_experts);
    const size_t sources = received.size();
    for (size_t expert = 0; expert < local; ++expert) {
      int64_t row = offsets[expert];
      for (size_t rank = 0; rank < sources; ++rank) {
        const int32_t count = counts[expert * sources + rank];
        blocks[rank * local + expert] = {.expert_order = row, .rank_order = 0, .count = count};
        row += count;
      }
    }
    int64_t row = 0;
    for (size_t rank = 0; rank < sources; ++rank) {
      const int64_t first = row;
      for (RowsFromRank& block : blocks.subspan(rank * local, local)) {
        block.rank_order = row;
        row += block.count;
      }
      received[rank] = row - first;
    }
  }

  /// Copies rows from the order of the ranks to that of the experts, or back.
  void copy_blocks(const Execution& execution, std::span<const RowsFromRank> blocks,
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
