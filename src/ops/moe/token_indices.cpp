#include "ops/moe/routed_types.h"
#include "ops/moe/routing.h"
#include "ops/moe/routing_kernels.h"
#include "ops/moe/token_blocks.h"
#include "ops/support.h"

namespace tessera {
namespace {

/// inputs: indices i32 [tokens, k], offsets i32 [local_experts + 1], block_offsets i32
/// [token blocks, local_experts]; outputs: those of TokenIndices, in order. The kernel is integer
/// arithmetic in a fixed order. It is both the plain and the fast one.
class IndexTokens final : public Operation {
 public:
  IndexTokens(int64_t first_expert, std::optional<int64_t> row_bound)
      : first_expert_(first_expert), row_bound_(row_bound) {}
  std::string_view name() const override { return "token_indices"; }

  std::string labels(std::span<const Spec>) const override { return "n! k!, f!, b! l! -> r, n k"; }
  HandRule hand_rule() const override {
    return routed_rule({Routed::choices, Routed::rows, Routed::block_offsets},
                       {Routed::rows, Routed::choices});
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == 3, "indices, offsets and places are expected");
    for (const Spec& input : inputs) {
      TESSERA_EXPECT(*this, input.dtype == DType::i32, "an input is {}", dtype_name(input.dtype));
    }
    const Shape& indices = inputs[0].shape;
    const Shape block_offsets{token_blocks(indices[0]), inputs[1].shape[0] - 1};
    TESSERA_EXPECT(*this, inputs[2].shape == block_offsets, "places {} where {} is expected",
                   inputs[2].shape.text(), block_offsets.text());
    return {{{row_bound_.value_or(indices.elements())}, DType::i32}, {indices, DType::i32}};
  }

  int64_t workspace_bytes(const Target& target, std::span<const Spec> inputs) const override {
    return target.device == Device::cpu ? inputs[2].bytes() : 0;
  }

  void run(const Execution& execution) const override {
    if (execution.stream != nullptr) return run_on_device(execution);
    const Shape& shape = execution.inputs[0].shape();
    const Tensor& block_offsets = execution.inputs[2];
    const int64_t local_experts = block_offsets.shape()[1];
    // For each block the index of each expert's next token. It starts as a copy of `block_offsets`.
    auto* taken = reinterpret_cast<int32_t*>(execution.workspace.data());
    parallel_ranges(execution.runtime.threads(), block_offsets.shape()[0],
                    row_grain(kTokenBlock * shape[1]), [&](int64_t begin, int64_t end, int) {
                      std::copy(block_offsets.data<int32_t>() + begin * local_experts,
                                block_offsets.data<int32_t>() + end * local_experts,
                                taken + begin * local_experts);
                      for (int64_t block = begin; block < end; ++block) {
                        number_block(execution, BlockChoices(block, shape[0], shape[1]),
                                     taken + block * local_experts);
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
    for_vendor(*execution.stream, [&](auto vendor) {
      token_indices_device<decltype(vendor)>(numbering, *execution.stream);
    });
  }

  /// Writes the row of each choice of a block, or -1 if its expert is not local or has reached its
  /// capacity: row = offsets[expert] + the number of earlier choices of the expert.
  void number_block(const Execution& execution, const BlockChoices& choices, int32_t* taken) const {
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
      const int32_t row = offsets[expert] + taken[expert]++;
      if (row >= offsets[expert + 1]) continue;
      output_indices[i] = row;
      input_indices[row] = static_cast<int32_t>(i / k);
    }
  }

  int64_t first_expert_;
  std::optional<int64_t> row_bound_;
};

}  // namespace

TokenIndices token_indices(Builder& builder, Value indices, const TokenCounts& counts,
                           const RoutingOptions& options) {
  std::optional<int64_t> bound;
  if (options.row_bound) bound = options.row_bound->rows;
  const std::vector<Value> outputs =
      builder.apply(std::make_shared<IndexTokens>(options.first_expert, bound),
                    {indices, counts.offsets, counts.block_offsets});
  if (options.expert_axis) builder.run_time_rows(outputs[0]);
  if (options.row_bound) {
    builder.rows(outputs[0],
                 {.expected = options.row_bound->balanced, .key = options.row_bound->key});
  }
  return {outputs[0], outputs[1]};
}

}  // namespace tessera
