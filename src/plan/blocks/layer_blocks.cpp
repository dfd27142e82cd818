// Writes the programs of one mixture layer and of one attention. Both functions check the sizes,
// declare the inputs, write the layer, and append the backward pass (complete_block()).

#include "plan/blocks/layer_blocks.h"

#include <algorithm>
#include <initializer_list>

#include "base/error.h"
#include "base/text.h"
#include "model/mixture.h"
#include "ops/attention/attention.h"

namespace tessera {
namespace {

/// Returns the product of sizes as a double, because an integer might overflow.
double product(std::initializer_list<int64_t> sizes) {
  double result = 1;
  for (const int64_t size : sizes) result *= static_cast<double>(size);
  return result;
}

/// Throws Error on a tensor with so many elements that bytes or FLOPs of the block could overflow
/// an integer. Whether the block fits the memory is checked later (require_memory()).
void require_countable(double elements) {
  constexpr double kMaxElements = 1e15;
  if (elements > kMaxElements) {
    throw Error("a tensor of these sizes has {} elements, more than this machine has memory for",
                format_count(elements));
  }
}

void require_sizes(const MixtureBlockSizes& sizes) {
  const int64_t widest = std::max(sizes.hidden, sizes.expert_size);
  require_countable(product({sizes.experts, sizes.hidden, sizes.expert_size}));
  require_countable(product({sizes.experts, std::max(sizes.hidden, sizes.tokens)}));
  require_countable(product({sizes.tokens, sizes.experts_per_token, widest}));
  if (sizes.experts_per_token > sizes.experts) {
    throw Error("{} experts a token of {} experts; a token has at most all of them",
                sizes.experts_per_token, sizes.experts);
  }
}

void require_sizes(const AttentionBlockSizes& sizes) {
  require_countable(product({sizes.tokens, sizes.heads, sizes.head_size}));
  require_countable(product({sizes.tokens, sizes.kv_heads, sizes.head_size}));
  if (sizes.heads % sizes.kv_heads != 0) {
    throw Error("{} heads are not a multiple of {} key-value heads", sizes.heads, sizes.kv_heads);
  }
  if (sizes.documents > sizes.tokens) {
    throw Error("{} documents in {} tokens; a document has at least one token", sizes.documents,
                sizes.tokens);
  }
}

/// Returns the start of each token's document.
std::vector<int32_t> document_starts(const AttentionBlockSizes& sizes) {
  std::vector<int32_t> starts;
  for (int64_t document = 0; document < sizes.documents; ++document) {
    const int64_t begin = document * sizes.tokens / sizes.documents;
    const int64_t end = (document + 1) * sizes.tokens / sizes.documents;
    starts.insert(starts.end(), static_cast<size_t>(end - begin), static_cast<int32_t>(begin));
  }
  return starts;
}

/// Returns the share of the causal triangle's token pairs that are within one document.
double attended_share(const AttentionBlockSizes& sizes, const std::vector<int32_t>& starts) {
  if (starts.empty()) return 1;
  double pairs = 0;
  for (size_t token = 0; token < starts.size(); ++token) {
    pairs += static_cast<double>(token) - starts[token] + 1;
  }
  const auto tokens = static_cast<double>(sizes.tokens);
  return pairs / (tokens * (tokens + 1) / 2);
}

}  // namespace

BlockProgram mixture_block(const MixtureBlockSizes& sizes, DType compute) {
  require_sizes(sizes);
  ModelConfig config;
  config.hidden_size = sizes.hidden;
  config.experts = sizes.experts;
  config.experts_per_token = sizes.experts_per_token;
  config.expert_size = sizes.expert_size;
  config.forced_uniform_routing = sizes.uniform_routing;
  BlockProgram block;
  Builder builder(block.program);
  ModelWriter writer{builder, config, compute, {}, {}};
  // A parameter, so that its gradient is computed.
  const Value x = builder.parameter("x", {{sizes.tokens, sizes.hidden}, compute, {}});
  if (sizes.skew > 0) {
    writer.given_choices =
        builder.state("choices", {{sizes.tokens, sizes.experts_per_token}, DType::i32, {}});
    block.integers[writer.given_choices->id] =
        skewed_choices(sizes.tokens, sizes.experts, sizes.experts_per_token, sizes.skew);
  }
  const RoutedLayer layer = mixture_of_experts(writer, x);
  builder.output(layer.counts);
  for (size_t i = 0; i < writer.parameters.values().size(); ++i) {
    block.deviations[writer.parameters.values()[i].id] =
        writer.parameters.specs()[i].initialization.deviation;
  }
  block.parameters = writer.parameters.elements();
  complete_block(block, builder, {&layer.output, 1});
  return block;
}

BlockProgram attention_block(const AttentionBlockSizes& sizes, DType compute) {
  require_sizes(sizes);
  BlockProgram block;
  Builder builder(block.program);
  const Spec queries{{sizes.tokens, sizes.heads * sizes.head_size}, compute, {}};
  const Spec keys{{sizes.tokens, sizes.kv_heads * sizes.head_size}, compute, {}};
  // States, not parameters: the operation computes their gradients anyway, without main gradients.
  const Value q = builder.state("q", queries);
  const Value k = builder.state("k", keys);
  const Value v = builder.state("v", keys);
  std::optional<Value> starts;
  const std::vector<int32_t> start_of_token = document_starts(sizes);
  if (!start_of_token.empty()) {
    starts = builder.state("document_starts", {{sizes.tokens}, DType::i32, {}});
    block.integers[starts->id] = start_of_token;
  }
  const AttentionOptions options{.sequence = sizes.tokens,
                                 .heads = sizes.heads,
                                 .kv_heads = sizes.kv_heads,
                                 .head_dim = sizes.head_size};
  const Value output = attention(builder, q, k, v, options, {.document_starts = starts});
  complete_block(block, builder, {&output, 1});
  const double share = attended_share(sizes, start_of_token);
  block.flops = {.forward = share * block.flops.forward,
                 .backward = share * block.flops.backward,
                 .repeated = share * block.flops.repeated};
  return block;
}

}  // namespace tessera
