#include "ops/moe/routing.h"

#include <cmath>
#include <limits>

#include "base/words.h"
#include "ops/moe/routed_types.h"
#include "ops/moe/routing_kernels.h"
#include "ops/support.h"

namespace tessera {
namespace {

// The rows are numbered by a counting sort. CountTokens counts the choices of each expert in each
// block of tokens, and adds up the counts over the blocks and over the experts. IndexTokens then
// gives each choice the next row of its expert. Both kernels are integer arithmetic in a fixed
// order, so each serves as the plain and as the fast kernel.

/// input: indices i32 [tokens, k]; outputs: those of TokenCounts, in order.
class CountTokens final : public Operation {
 public:
  explicit CountTokens(const RoutingOptions& options) : options_(options) {}
  std::string_view name() const override { return "token_counts"; }

  std::string labels(std::span<const Spec>) const override { return "n! k! -> E, f, b l"; }
  /// Returns a rule in which split tokens give partial counts, offsets with the type of the rows,
  /// and block offsets with the type of the indices. If the tokens are replicated on the expert
  /// axis, both kinds of offsets are split by experts.
  HandRule hand_rule() const override {
    return [expert_axis = options_.expert_axis, identity = options_.identity](
               Axis axis,
               std::span<const TypeOnAxis> types) -> std::optional<std::vector<TypeOnAxis>> {
      const TypeOnAxis& indices = types[0];
      if (splits_rows(indices)) {
        if (identity >= 0) return std::vector{partial(), rows_of_exchange(identity), indices};
        throw DistributionError("split tokens; expected an identity of their rows");
      }
      if (expert_axis != axis || !indices.same_on_ranks()) return std::nullopt;
      return std::vector{replicated(), sharded(0), sharded(1)};
    };
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(
        *this, inputs.size() == 1 && inputs[0].dtype == DType::i32 && inputs[0].shape.rank() == 2,
        "one i32 matrix [tokens, k] is expected");
    TESSERA_EXPECT(*this, inputs[0].shape.elements() <= std::numeric_limits<int32_t>::max(),
                   "the {} choices do not fit 32-bit indices", inputs[0].shape.elements());
    TESSERA_EXPECT(*this,
                   options_.local_experts >= 1 && options_.first_expert >= 0 &&
                       options_.first_expert + options_.local_experts <= options_.experts,
                   "the rank holds {} experts from {} on; the layer has {}", options_.local_experts,
                   options_.first_expert, options_.experts);
    TESSERA_EXPECT(*this, options_.capacity_factor.value_or(1) > 0,
                   "a capacity factor of {}; it must be positive", *options_.capacity_factor);
    const int64_t blocks = token_blocks(inputs[0].shape[0]);
    return {{{options_.experts}, DType::i32},
            {{options_.local_experts + 1}, DType::i32},
            {{blocks, options_.local_experts}, DType::i32}};
  }

  int64_t workspace_bytes(const Target&, std::span<const Spec> inputs) const override {
    return token_blocks(inputs[0].shape[0]) * options_.experts * dtype_size(DType::i32);
  }

  void run(const Execution& execution) const override {
    if (execution.stream != nullptr) return run_on_device(execution);
    const Shape& shape = execution.inputs[0].shape();
    const int64_t blocks = token_blocks(shape[0]);
    const int32_t* indices = execution.inputs[0].data<int32_t>();
    auto* block_counts = reinterpret_cast<int32_t*>(execution.workspace.data());
    parallel_each(execution.runtime.threads(), blocks, row_grain(kTokenBlock * shape[1]),
                  [&](int64_t block) {
                    int32_t* counts = block_counts + block * options_.experts;
                    std::fill_n(counts, options_.experts, 0);
                    const BlockChoices choices(block, shape[0], shape[1]);
                    for (int64_t i = choices.begin; i < choices.end; ++i) {
                      if (indices[i] >= 0 && indices[i] < options_.experts) ++counts[indices[i]];
                    }
                  });
    // counts[e] = Σ_b block_counts[b, e], and for each local expert
    // block_offsets[b, e] = Σ_{a < b} block_counts[a, e]
    int32_t* counts = execution.outputs[0].data<int32_t>();
    int32_t* block_offsets = execution.outputs[2].data<int32_t>();
    std::fill_n(counts, options_.experts, 0);
    for (int64_t block = 0; block < blocks; ++block) {
      std::copy_n(counts + options_.first_expert, options_.local_experts,
                  block_offsets + block * options_.local_experts);
      for (int64_t e = 0; e < options_.experts; ++e) {
        counts[e] += block_counts[block * options_.experts + e];
      }
    }
    // offsets[e + 1] = Σ_{a <= e} min(counts[first_expert + a], capacity)
    int32_t* offsets = execution.outputs[1].data<int32_t>();
    const int64_t max_tokens = capacity(shape);
    int64_t row = 0;
    offsets[0] = 0;
    for (int64_t e = 0; e < options_.local_experts; ++e) {
      row += std::min<int64_t>(counts[options_.first_expert + e], max_tokens);
      offsets[e + 1] = static_cast<int32_t>(row);
    }
    if (options_.row_bound) require_row_bound(execution, *options_.row_bound, row);
  }

  void require_runnable(Runtime& runtime, std::span<const Spec> inputs) const override {
    if (!options_.row_bound || runtime.accelerator() == nullptr) return;
    // A token's choices are different experts, so each local expert gets at most one of them.
    const Shape& choices = inputs[0].shape;
    const int64_t possible_rows = choices[0] * std::min(choices[1], options_.local_experts);
    const RowBound& bound = *options_.row_bound;
    if (bound.rows >= possible_rows) return;
    throw Error(
        "{} on {}: {} rows are reserved for a rank's experts, {} can come, and a device does not "
        "count them; set {} to 0 for as many as can come, or run.device = \"cpu\"",
        name(), word(runtime.target().device), bound.rows, possible_rows, bound.key);
  }

 private:
  void run_on_device(const Execution& execution) const {
    TESSERA_CHECK(options_.experts <= kMostRoutedExperts,
                  "a router of {} experts; a device counts up to {}", options_.experts,
                  kMostRoutedExperts);
    const Shape& shape = execution.inputs[0].shape();
    const TokenCounting counting{
        .tokens = shape[0],
        .k = shape[1],
        .experts = options_.experts,
        .first_expert = options_.first_expert,
        .local_experts = options_.local_experts,
        .capacity = static_cast<int32_t>(
            std::min<int64_t>(capacity(shape), std::numeric_limits<int32_t>::max())),
        .indices = execution.inputs[0].pointer<int32_t>(),
        .block_counts = reinterpret_cast<int32_t*>(execution.workspace.data()),
        .counts = execution.outputs[0].pointer<int32_t>(),
        .offsets = execution.outputs[1].pointer<int32_t>(),
        .block_offsets = execution.outputs[2].pointer<int32_t>()};
    for_vendor(*execution.stream, [&]<typename Vendor>(Vendor) {
      token_counts_device<Vendor>(counting, *execution.stream);
    });
  }

  /// Returns the largest number of tokens that an expert takes.
  int64_t capacity(const Shape& shape) const {
    if (!options_.capacity_factor) return shape.elements();
    return expert_capacity(*options_.capacity_factor, shape[0], shape[1], options_.experts);
  }

  RoutingOptions options_;
};

/// inputs: indices i32 [tokens, k], offsets i32 [local_experts + 1], block_offsets i32
/// [token blocks, local_experts]; outputs: those of TokenIndices, in order.
class IndexTokens final : public Operation {
 public:
  IndexTokens(int64_t first_expert, std::optional<int64_t> reserved_rows)
      : first_expert_(first_expert), reserved_rows_(reserved_rows) {}
  std::string_view name() const override { return "token_indices"; }

  std::string labels(std::span<const Spec>) const override { return "n! k!, f!, b! l! -> r, n k"; }
  HandRule hand_rule() const override {
    return routed_rule({Routed::choices, Routed::rows, Routed::block_offsets},
                       {Routed::rows, Routed::choices});
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == 3, "indices, offsets and block offsets are expected");
    for (const Spec& input : inputs) {
      TESSERA_EXPECT(*this, input.dtype == DType::i32, "an input is {}", dtype_name(input.dtype));
    }
    const Shape& indices = inputs[0].shape;
    const Shape block_offsets{token_blocks(indices[0]), inputs[1].shape[0] - 1};
    TESSERA_EXPECT(*this, inputs[2].shape == block_offsets, "block offsets {}; expected {}",
                   inputs[2].shape.text(), block_offsets.text());
    return {{{reserved_rows_.value_or(indices.elements())}, DType::i32}, {indices, DType::i32}};
  }

  int64_t workspace_bytes(const Target& target, std::span<const Spec> inputs) const override {
    return target.device == Device::cpu ? inputs[2].bytes() : 0;
  }

  void run(const Execution& execution) const override {
    if (execution.stream != nullptr) return run_on_device(execution);
    const Shape& shape = execution.inputs[0].shape();
    const Tensor& block_offsets = execution.inputs[2];
    const int64_t local_experts = block_offsets.shape()[1];
    // [token blocks, local_experts]: the index of each expert's next token in the block, among the
    // expert's tokens. It starts as a copy of `block_offsets`.
    auto* next_tokens = reinterpret_cast<int32_t*>(execution.workspace.data());
    parallel_ranges(execution.runtime.threads(), block_offsets.shape()[0],
                    row_grain(kTokenBlock * shape[1]), [&](int64_t begin, int64_t end, int) {
                      std::copy_n(block_offsets.data<int32_t>() + begin * local_experts,
                                  (end - begin) * local_experts,
                                  next_tokens + begin * local_experts);
                      for (int64_t block = begin; block < end; ++block) {
                        number_block(execution, BlockChoices(block, shape[0], shape[1]),
                                     next_tokens + block * local_experts);
                      }
                    });
    const std::span<int32_t> input_indices = execution.outputs[0].values<int32_t>();
    const int32_t end = execution.inputs[1].data<int32_t>()[local_experts];
    std::fill(input_indices.begin() + end, input_indices.end(), -1);
  }

 private:
  void run_on_device(const Execution& execution) const {
    const Shape& shape = execution.inputs[0].shape();
    const TokenNumbering numbering{.tokens = shape[0],
                                   .k = shape[1],
                                   .first_expert = first_expert_,
                                   .local_experts = execution.inputs[2].shape()[1],
                                   .rows = execution.outputs[0].elements(),
                                   .indices = execution.inputs[0].pointer<int32_t>(),
                                   .offsets = execution.inputs[1].pointer<int32_t>(),
                                   .block_offsets = execution.inputs[2].pointer<int32_t>(),
                                   .input_indices = execution.outputs[0].pointer<int32_t>(),
                                   .output_indices = execution.outputs[1].pointer<int32_t>()};
    TESSERA_CHECK(numbering.local_experts <= kMostRoutedExperts,
                  "{} experts on a device; it numbers the tokens of up to {}",
                  numbering.local_experts, kMostRoutedExperts);
    for_vendor(*execution.stream, [&]<typename Vendor>(Vendor) {
      token_indices_device<Vendor>(numbering, *execution.stream);
    });
  }

  /// Writes the row of each choice of a block, or -1 if its expert is not local or has reached its
  /// capacity: row = offsets[expert] + the number of earlier choices of the expert.
  void number_block(const Execution& execution, const BlockChoices& choices,
                    int32_t* next_tokens) const {
    const int32_t* indices = execution.inputs[0].data<int32_t>();
    const int32_t* offsets = execution.inputs[1].data<int32_t>();
    const int64_t local_experts = execution.inputs[2].shape()[1];
    const int64_t k = execution.inputs[0].shape()[1];
    int32_t* input_indices = execution.outputs[0].data<int32_t>();
    int32_t* output_indices = execution.outputs[1].data<int32_t>();
    for (int64_t i = choices.begin; i < choices.end; ++i) {
      const int64_t expert = indices[i] - first_expert_;
      output_indices[i] = -1;
      if (expert < 0 || expert >= local_experts) continue;
      const int32_t row = offsets[expert] + next_tokens[expert]++;
      if (row >= offsets[expert + 1]) continue;
      output_indices[i] = row;
      input_indices[row] = static_cast<int32_t>(i / k);
    }
  }

  int64_t first_expert_;
  std::optional<int64_t> reserved_rows_;
};

}  // namespace

void require_row_bound(const Execution& execution, const RowBound& bound, int64_t rows) {
  if (rows <= bound.rows) return;
  throw Error(
      "{}: rank {} got {} rows for its experts, {:.2f} times the {} of an even load; {} are "
      "reserved; give {} a larger value, or 0 for as many rows as can come",
      execution.name, execution.runtime.groups().rank(), rows,
      static_cast<double>(rows) / static_cast<double>(std::max<int64_t>(bound.balanced, 1)),
      bound.balanced, bound.rows, bound.key);
}

int64_t expert_capacity(double factor, int64_t tokens, int64_t k, int64_t experts) {
  const double balanced = static_cast<double>(tokens * k) / static_cast<double>(experts);
  // The last factor undoes the rounding of a product to just above a whole number.
  return static_cast<int64_t>(std::ceil(factor * balanced * (1 - 1e-12)));
}

TokenCounts token_counts(Builder& builder, Value indices, const RoutingOptions& options) {
  const std::vector<Value> outputs =
      builder.apply(std::make_shared<CountTokens>(options), {indices});
  return {outputs[0], outputs[1], outputs[2]};
}

TokenIndices token_indices(Builder& builder, Value indices, const TokenCounts& counts,
                           const RoutingOptions& options) {
  std::optional<int64_t> reserved_rows;
  if (options.row_bound) reserved_rows = options.row_bound->rows;
  const std::vector<Value> outputs =
      builder.apply(std::make_shared<IndexTokens>(options.first_expert, reserved_rows),
                    {indices, counts.offsets, counts.block_offsets});
  if (options.expert_axis) builder.mark_run_time_rows(outputs[0]);
  if (options.row_bound) {
    builder.set_rows(outputs[0],
                     {.expected = options.row_bound->balanced, .key = options.row_bound->key});
  }
  return {outputs[0], outputs[1]};
}

}  // namespace tessera
