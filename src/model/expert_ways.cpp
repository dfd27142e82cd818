#include "model/expert_ways.h"

#include <algorithm>
#include <cmath>

#include "model/expert_matrices.h"
#include "ops/collective/convert.h"
#include "ops/moe/exchange.h"
#include "ops/moe/gather_tokens.h"
#include "ops/moe/reduce_experts.h"
#include "ops/moe/routing.h"

namespace tessera {
namespace {

/// The experts' axis of a program's mesh, and the number of experts on each of its ranks.
struct ExpertAxis {
  explicit ExpertAxis(const ModelWriter& writer)
      : axis(writer.mesh().expert()),
        ranks(writer.mesh().size(axis)),
        local_experts(writer.config.experts / ranks) {
    if (writer.config.experts % ranks == 0) return;
    throw Error(
        "model.experts = {} do not divide into the {} parts of parallel.expert; give one "
        "that divides them",
        writer.config.experts, ranks);
  }
  Axis axis;
  int ranks;
  int64_t local_experts;
};

/// Returns the bound on the rows of this rank's experts: the largest possible number, or the
/// configured bound.
RowBound row_bound(const ModelWriter& writer, const ExpertLayout& layout,
                   const ExpertTokens& tokens, const ExpertAxis& over) {
  const int64_t count = writer.builder.spec(tokens.kept).shape[0];
  const int64_t k = writer.config.experts_per_token;
  const int64_t most = count * over.ranks * std::min(k, over.local_experts);
  RowBound bound{.rows = most, .balanced = count * k, .key = "parallel.expert_rows_bound"};
  if (layout.rows_bound > 0) {
    const auto limit =
        std::ceil(layout.rows_bound * static_cast<double>(bound.balanced) * (1 - 1e-12));
    bound.rows = std::min(most, static_cast<int64_t>(limit));
  }
  return bound;
}

/// Returns the options by which choices become the rows of all experts. Choices beyond a capacity
/// are dropped there unless they have been dropped before.
RoutingOptions routing_of(const ModelConfig& config, const ExpertTokens& tokens) {
  RoutingOptions options{.experts = config.experts, .local_experts = config.experts};
  if (config.capacity_factor > 0 && !tokens.dropped) {
    options.capacity_factor = config.capacity_factor;
  }
  return options;
}

/// Writes the experts of this rank, for tokens that are all on this rank.
ExpertResults write_local(ModelWriter& writer, const ExpertTokens& tokens,
                          const RoutingOptions& routing) {
  Builder& builder = writer.builder;
  const TokenCounts counts = token_counts(builder, tokens.kept, routing);
  const TokenIndices rows = token_indices(builder, tokens.kept, counts, routing);
  const ExpertMatrices matrices = declare_experts(writer, tokens.split);
  const Value results = apply_experts(writer, matrices, gather_tokens(builder, tokens.x, rows),
                                      counts.offsets);  // [rows, hidden]
  return {reduce_experts(builder, results, tokens.weights, rows), counts.counts};
}

/// Writes the experts with an all-gather: each rank gets the tokens of all ranks that share the
/// experts, and its experts take their rows of them.
ExpertResults write_all_gather(ModelWriter& writer, const ExpertLayout& layout,
                               const ExpertTokens& tokens, const ExpertAxis& over) {
  Builder& builder = writer.builder;
  const auto gathered = [&](Value value) {
    return convert(builder, value, over.axis, Placement::varying, replicated());
  };
  ExpertTokens all = tokens;
  all.x = gathered(tokens.x);
  all.weights = gathered(tokens.weights);
  all.kept = gathered(tokens.kept);
  RoutingOptions routing = routing_of(writer.config, tokens);
  routing.local_experts = over.local_experts;
  routing.first_expert =
      over.local_experts * writer.mesh().coordinate(builder.program().rank(), over.axis);
  routing.expert_axis = over.axis;
  routing.identity = tokens.received_rows;
  if (over.ranks > 1) routing.row_bound = row_bound(writer, layout, tokens, over);
  ExpertResults results = write_local(writer, all, routing);
  results.output = convert(builder, results.output, over.axis, Placement::partial,
                           builder.spec(tokens.x).distribution.on(over.axis));
  return results;
}

/// Writes the experts with an all-to-all: each rank sends its tokens to the ranks of their experts.
ExpertResults write_all_to_all(ModelWriter& writer, const ExpertLayout& layout,
                               const ExpertTokens& tokens, const ExpertAxis& over) {
  Builder& builder = writer.builder;
  RoutingOptions routing = routing_of(writer.config, tokens);
  routing.identity = tokens.sent_rows;
  const TokenCounts counts = token_counts(builder, tokens.kept, routing);
  const TokenIndices rows = token_indices(builder, tokens.kept, counts, routing);
  const ExpertMatrices matrices = declare_experts(writer, tokens.split);
  const RowExchange exchange =
      exchange_counts(builder, counts.offsets,
                      {.axis = over.axis,
                       .local_experts = over.local_experts,
                       .sent_rows = builder.spec(tokens.kept).shape.elements(),
                       .bound = row_bound(writer, layout, tokens, over),
                       .sent_identity = tokens.sent_rows,
                       .received_identity = tokens.received_rows});
  const Value sent = gather_tokens(builder, tokens.x, rows);  // [tokens · k, hidden]
  const Value results = apply_experts(writer, matrices, exchange_rows(builder, sent, exchange),
                                      exchange.offsets);  // [bound, hidden]
  return {reduce_experts(builder, return_rows(builder, results, exchange), tokens.weights, rows),
          counts.counts};
}

}  // namespace

ExpertResults write_experts(ModelWriter& writer, const ExpertLayout& layout,
                            const ExpertTokens& tokens) {
  const ExpertAxis over(writer);
  if (!tokens.split) return write_local(writer, tokens, routing_of(writer.config, tokens));
  const bool sends_rows = layout.exchange == ExpertExchange::all_to_all ||
                          (layout.exchange == ExpertExchange::automatic &&
                           writer.config.experts_per_token < over.ranks);
  return sends_rows ? write_all_to_all(writer, layout, tokens, over)
                    : write_all_gather(writer, layout, tokens, over);
}

}  // namespace tessera
