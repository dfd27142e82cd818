#include "ops/moe/exchange.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "base/words.h"
#include "comm/call_list.h"
#include "ops/moe/routed_types.h"
#include "ops/support.h"
#include "tensor/alignment.h"

namespace tessera {
namespace {

// Over several ranks an exchange has two kinds of nodes. One ExchangeCounts sends the numbers of
// rows, from which every rank knows how many rows come from each rank. Each MoveRows then sends
// rows, forth or back. On a single rank an ExchangeInPlace gives the same memory another type.

/// The two sides of an exchange. On the sent side a rank holds the rows that it made of its own
/// tokens, on the received side the rows of its own experts.
enum class Side : uint8_t { sent, received };

Side opposite(Side side) { return side == Side::sent ? Side::received : Side::sent; }

/// Returns the rule of types of an operation whose operands are on these sides. Sent rows vary over
/// all axes, received rows over all but the axis of the exchange, which splits them by experts.
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
          if (same_pieces(types[k], type)) continue;
          throw DistributionError(fmt::format("operand {}: expected {}", k, type.text()));
        }
        std::vector<TypeOnAxis> result;
        for (const Side side : outputs) result.push_back(expected(side));
        return result;
      };
}

/// The base of ExchangeCounts and MoveRows, which send something to other ranks.
class ExchangeOperation : public Operation {
 public:
  ExchangeOperation(ExchangeOptions options, int ranks)
      : options_(std::move(options)), ranks_(ranks) {}
  Lane lane() const override { return Lane::exchanges; }
  std::vector<std::vector<Axis>> group_axes() const override { return {{options_.axis}}; }
  void require_runnable(Runtime& runtime, std::span<const Spec>) const override {
    if (runtime.accelerator() == nullptr) return;
    throw Error(
        "{} on {}: devices do not send rows to the ranks of their experts yet; set "
        "parallel.expert_exchange = \"all_gather\" or run.device = \"cpu\"",
        name(), word(runtime.target().device));
  }

 protected:
  int64_t experts() const { return options_.local_experts * ranks_; }
  /// Returns the cost of sending an array of `bytes` bytes, of which each rank gets an equal part.
  Cost cost_of_sending(double bytes, std::span<const Spec> inputs,
                       std::span<const Spec> outputs) const {
    return {.bytes = operand_bytes(inputs, outputs),
            .wire = {{.axes = {options_.axis}, .bytes = bytes * (ranks_ - 1) / ranks_}}};
  }

  ExchangeOptions options_;
  int ranks_;
};

/// input: offsets i32 [experts + 1] of the sent rows; outputs: RowExchange::received, offsets.
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
    TESSERA_EXPECT(*this, options_.bound.rows <= std::numeric_limits<int32_t>::max(),
                   "{} rows do not fit 32-bit offsets", options_.bound.rows);
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

  /// Sends the number of rows of each expert to the expert's rank, and writes the numbers that
  /// arrive in the order of this rank's experts.
  void run(const Execution& execution) const override {
    const Shape shape{ranks_, options_.local_experts};
    const auto half = static_cast<int64_t>(execution.workspace.size()) / 2;
    const Tensor sent = Tensor::wrap(execution.workspace.data(), shape, DType::i32);
    const Tensor received = Tensor::wrap(execution.workspace.data() + half, shape, DType::i32);
    const int32_t* offsets = execution.inputs[0].data<int32_t>();
    for (int64_t e = 0; e < experts(); ++e) sent.data<int32_t>()[e] = offsets[e + 1] - offsets[e];
    execution.group().all_to_all(execution.name, sent, received);
    const std::span<const int32_t> counts = received.values<int32_t>();
    require_row_bound(execution, options_.bound,
                      std::accumulate(counts.begin(), counts.end(), int64_t{0}));
    int32_t row = 0;  // does not overflow: infer() checks the bound
    execution.outputs[1].data<int32_t>()[0] = 0;
    for (int64_t e = 0; e < options_.local_experts; ++e) {
      for (int64_t rank = 0; rank < ranks_; ++rank) {
        const int32_t count = counts[static_cast<size_t>(rank * options_.local_experts + e)];
        execution.outputs[0].data<int32_t>()[e * ranks_ + rank] = count;
        row += count;
      }
      execution.outputs[1].data<int32_t>()[e + 1] = row;
    }
  }
  void list_calls(const CallListing& listing) const override {
    listing.group().all_to_all(listing.name, DType::i32, {ranks_, options_.local_experts});
  }
};

/// A block of rows: those that one rank sends to one local expert. The blocks arrive ordered by
/// rank, but the experts need them ordered by expert.
struct RowsFromRank {
  int64_t begin_by_expert;  ///< the index of the first row if the rows are ordered by expert
  int64_t begin_by_rank;    ///< the index of the first row if they are ordered by rank
  int64_t count;
};

/// inputs: rows, then RowExchange::sent, received and offsets; output: rows on the other side.
class MoveRows final : public ExchangeOperation {
 public:
  MoveRows(const ExchangeOptions& options, int ranks, Side from)
      : ExchangeOperation(options, ranks), source_side_(from) {}

  /// Appends a node. The number of rows that are received is known only at run time.
  static Value apply(Builder& builder, const ExchangeOptions& options, int ranks, Side from,
                     std::vector<Value> inputs) {
    const Value output =
        builder.apply_single(std::make_shared<MoveRows>(options, ranks, from), std::move(inputs));
    const RowBound& bound = options.bound;
    if (from == Side::sent)
      builder.set_rows(output, {.expected = bound.balanced, .key = bound.key});
    return output;
  }

  std::string_view name() const override {
    return source_side_ == Side::sent ? "exchange_rows" : "return_rows";
  }

  std::string labels(std::span<const Spec>) const override { return "~r! c, f!, E! s!, E! -> q c"; }
  HandRule hand_rule() const override {
    return exchange_rule(options_, {source_side_, Side::sent, Side::received, Side::received},
                         {target_side()});
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == 4 && is_floating(inputs[0].dtype),
                   "rows and the numbers of an exchange are expected");
    TESSERA_EXPECT(*this,
                   inputs[0].shape.rank() == 2 && inputs[0].shape[0] == rows_of(source_side_) &&
                       inputs[1].shape == Shape({experts() + 1}) &&
                       inputs[2].shape == Shape({options_.local_experts, ranks_}) &&
                       inputs[3].shape == Shape({options_.local_experts + 1}),
                   "rows {} with offsets {} and {} and counts {}", inputs[0].shape.text(),
                   inputs[1].shape.text(), inputs[3].shape.text(), inputs[2].shape.text());
    return {{{rows_of(target_side()), inputs[0].shape[1]}, inputs[0].dtype}};
  }

  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> output_gradients) const override {
    std::vector<Value> result(self.inputs.size());
    if (!output_gradients[0]) return result;
    std::vector<Value> inputs = self.inputs;
    inputs[0] = output_gradients[0];
    result[0] = apply(builder, options_, ranks_, target_side(), std::move(inputs));
    return result;
  }

  /// Returns the cost for an even load.
  Cost cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const override {
    const Spec& sent = source_side_ == Side::sent ? inputs[0] : outputs[0];
    return cost_of_sending(static_cast<double>(sent.bytes()), inputs, outputs);
  }
  /// Returns the bytes of the counts, and of a copy of the rows in the order of the ranks. A single
  /// local expert needs no copy, because its rows are in the order of the ranks.
  int64_t workspace_bytes(const Target&, std::span<const Spec> inputs) const override {
    if (options_.local_experts == 1) return counts_bytes();
    return counts_bytes() + options_.bound.rows * inputs[0].shape[1] * dtype_size(inputs[0].dtype);
  }

  void run(const Execution& execution) const override {
    const auto ranks = static_cast<size_t>(ranks_);
    auto* counts = reinterpret_cast<int64_t*>(execution.workspace.data());
    const std::span sent(counts, ranks);
    const std::span received(counts + ranks, ranks);
    const std::span blocks(reinterpret_cast<RowsFromRank*>(counts + 2 * ranks),
                           static_cast<size_t>(experts()));
    const std::span<const int32_t> offsets = execution.inputs[1].values<int32_t>();
    const auto local_experts = static_cast<size_t>(options_.local_experts);
    for (size_t rank = 0; rank < ranks; ++rank) {
      sent[rank] = offsets[(rank + 1) * local_experts] - offsets[rank * local_experts];
    }
    find_blocks(execution, blocks, received);
    const Tensor& from = execution.inputs[0];
    const Tensor& to = execution.outputs[0];
    if (source_side_ == Side::sent) {
      const Tensor arrived = local_experts == 1 ? to : staged(execution);
      execution.group().all_to_all_rows(execution.name, from, sent, arrived, received);
      if (local_experts > 1) copy_blocks(execution, blocks, arrived, to);
    } else {
      const Tensor leaving = local_experts == 1 ? from : staged(execution);
      if (local_experts > 1) copy_blocks(execution, blocks, from, leaving);
      execution.group().all_to_all_rows(execution.name, leaving, received, to, sent);
    }
  }
  void list_calls(const CallListing& listing) const override {
    const Spec& rows = listing.inputs[0];
    listing.group().all_to_all_rows(listing.name, rows.dtype, rows.shape.with_dim(0, 1));
  }

 private:
  Side target_side() const { return opposite(source_side_); }
  int64_t rows_of(Side side) const {
    return side == Side::sent ? options_.sent_rows : options_.bound.rows;
  }

  /// Returns the memory in the workspace for a copy of the rows in the order of the ranks.
  Tensor staged(const Execution& execution) const {
    const Tensor& rows = execution.inputs[0];
    return Tensor::wrap(execution.workspace.data() + counts_bytes(),
                        {options_.bound.rows, rows.shape()[1]}, rows.dtype());
  }

  /// Returns the bytes of three lists: the numbers of rows sent to each rank, those received from
  /// each rank, and a block for each rank and local expert.
  int64_t counts_bytes() const {
    return aligned_bytes(2 * ranks_ * static_cast<int64_t>(sizeof(int64_t)) +
                         experts() * static_cast<int64_t>(sizeof(RowsFromRank)));
  }

  /// Writes the blocks of rows that this rank receives, [ranks, local experts], and the number of
  /// rows that it receives from each rank.
  void find_blocks(const Execution& execution, std::span<RowsFromRank> blocks,
                   std::span<int64_t> received) const {
    const std::span<const int32_t> counts = execution.inputs[2].values<int32_t>();
    const std::span<const int32_t> offsets = execution.inputs[3].values<int32_t>();
    const auto local_experts = static_cast<size_t>(options_.local_experts);
    const size_t sources = received.size();
    for (size_t expert = 0; expert < local_experts; ++expert) {
      int64_t row = offsets[expert];
      for (size_t rank = 0; rank < sources; ++rank) {
        const int32_t count = counts[expert * sources + rank];
        blocks[rank * local_experts + expert] = {
            .begin_by_expert = row, .begin_by_rank = 0, .count = count};
        row += count;
      }
    }
    int64_t row = 0;
    for (size_t rank = 0; rank < sources; ++rank) {
      const int64_t first = row;
      for (RowsFromRank& block : blocks.subspan(rank * local_experts, local_experts)) {
        block.begin_by_rank = row;
        row += block.count;
      }
      received[rank] = row - first;
    }
  }

  /// Copies rows from the order of the ranks to that of the experts, or back.
  void copy_blocks(const Execution& execution, std::span<const RowsFromRank> blocks,
                   const Tensor& from, const Tensor& to) const {
    const int64_t row_bytes = from.shape()[1] * dtype_size(from.dtype());
    const bool into_experts = source_side_ == Side::sent;
    parallel_items(execution.threads(), std::ssize(blocks), [&](int64_t item, int) {
      const RowsFromRank& block = blocks[static_cast<size_t>(item)];
      const int64_t source = into_experts ? block.begin_by_rank : block.begin_by_expert;
      const int64_t target = into_experts ? block.begin_by_expert : block.begin_by_rank;
      std::memcpy(to.raw() + target * row_bytes, from.raw() + source * row_bytes,
                  static_cast<size_t>(block.count * row_bytes));
    });
  }

  Side source_side_;
};

Value exchange_in_place(Builder& builder, Value rows, const ExchangeOptions& options, Side from);

/// input: one rank's rows or their offsets; output: the same memory with the other side's type.
class ExchangeInPlace final : public Operation {
 public:
  ExchangeInPlace(const ExchangeOptions& options, Side from)
      : options_(options), source_side_(from) {}
  std::string_view name() const override { return "exchange_in_place"; }

  std::string labels(std::span<const Spec> inputs) const override {
    return inputs[0].shape.rank() == 1 ? "~r! -> q" : "~r! c -> q c";
  }
  HandRule hand_rule() const override {
    return exchange_rule(options_, {source_side_}, {opposite(source_side_)});
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override { return {inputs[0]}; }
  std::vector<Value> gradient(Builder& builder, const Node&,
                              std::span<const Value> output_gradients) const override {
    if (!output_gradients[0]) return {Value{}};
    return {exchange_in_place(builder, output_gradients[0], options_, opposite(source_side_))};
  }
  Cost cost(std::span<const Spec>, std::span<const Spec>) const override { return {}; }
  std::optional<View> view(int) const override { return View{.retyped = true}; }
  void run(const Execution&) const override {}

 private:
  ExchangeOptions options_;
  Side source_side_;
};

Value exchange_in_place(Builder& builder, Value rows, const ExchangeOptions& options, Side from) {
  const Value result =
      builder.apply_single(std::make_shared<ExchangeInPlace>(options, from), {rows});
  const bool are_rows = is_floating(builder.spec(rows).dtype);
  if (from == Side::sent && are_rows) builder.mark_run_time_rows(result);
  return result;
}

Value move_rows(Builder& builder, Value rows, const RowExchange& exchange, Side from) {
  const ExchangeOptions& options = exchange.options;
  const int ranks = builder.program().mesh().size(options.axis);
  if (ranks == 1) return exchange_in_place(builder, rows, options, from);
  return MoveRows::apply(builder, options, ranks, from,
                         {rows, exchange.sent, exchange.received, exchange.offsets});
}

}  // namespace

RowExchange exchange_counts(Builder& builder, Value offsets, const ExchangeOptions& options) {
  const int ranks = builder.program().mesh().size(options.axis);
  if (ranks == 1) {
    return {options, offsets, offsets, exchange_in_place(builder, offsets, options, Side::sent)};
  }
  const std::vector<Value> outputs =
      builder.apply(std::make_shared<ExchangeCounts>(options, ranks), {offsets});
  // These few numbers serve all exchanges of the layer, even if the layer is recomputed.
  for (const Value output : outputs) builder.keep(output, Keep::layer);
  return {options, offsets, outputs[0], outputs[1]};
}

Value exchange_rows(Builder& builder, Value rows, const RowExchange& exchange) {
  return move_rows(builder, rows, exchange, Side::sent);
}

Value return_rows(Builder& builder, Value rows, const RowExchange& exchange) {
  return move_rows(builder, rows, exchange, Side::received);
}

}  // namespace tessera
