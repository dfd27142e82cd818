#include "config/check_context.h"

#include <algorithm>

#include "base/error.h"
#include "config/mesh_of.h"
#include "config/sections.h"

namespace tessera {
namespace {

constexpr double kMaxRows = 0x1p31;  // fewer rows than this have 32-bit indices
// The bytes of fewer elements than this fit 64 bits, even if there are several copies.
constexpr double kMaxElements = 0x1p56;

/// Throws Error if a context is out of the range of the key data.context.
void check_range(const ContextLength& context) {
  const ConfigSection section = data_section();
  try {
    checked_value(find_named(section.keys, "context")->rule, context.positions);
  } catch (const Error& error) {
    throw Error("{}: {}", context.name, error.what());
  }
}

/// Returns the rows of a micro-batch: its tokens, times the experts of a token in a mixture.
double rows_of(const RunConfig& config, const ContextLength& context) {
  return static_cast<double>(config.train.micro_batch) * static_cast<double>(context.positions) *
         static_cast<double>(std::max<int64_t>(1, config.model.experts_per_token));
}

/// Adds a contradiction if 64 bits cannot count the bytes of a micro-batch's activations.
void check_activations(const RunConfig& config, const ContextLength& context,
                       Contradictions& found) {
  const ModelConfig& model = config.model;
  const int64_t widths[] = {model.hidden_size,
                            model.heads * model.head_dim,
                            model.feed_forward_size,
                            model.expert_size,
                            model.shared_experts * model.expert_size,
                            model.vocabulary_size,
                            model.experts};
  const double elements = rows_of(config, context) * static_cast<double>(model.layers) *
                          static_cast<double>(*std::ranges::max_element(widths));
  if (elements < kMaxElements) return;
  found.add(
      "{} ({}) * {} ({}) * model.layers ({}), at the model's greatest width, are {:g} numbers; "
      "expected fewer than {:g}: choose a smaller micro-batch, context or model",
      context.micro_batch, config.train.micro_batch, context.name, context.positions, model.layers,
      elements, kMaxElements);
}

}  // namespace

void check_context(const RunConfig& config, const ContextLength& context, Contradictions& found) {
  const int64_t max_context = config.model.max_context;
  if (max_context > 0 && context.positions > max_context) {
    found.add("{} ({}) is larger than model.max_context ({}); lower the one or raise the other",
              context.name, context.positions, max_context);
  }
  const double rows = rows_of(config, context);
  check_activations(config, context, found);
  if (rows < kMaxRows) return;
  found.add(
      "{} ({}) * {} ({}) * model.experts_per_token ({}, at least 1) is {:.0f}; it must be less "
      "than {:.0f}: choose a smaller micro-batch or a shorter context",
      context.micro_batch, config.train.micro_batch, context.name, context.positions,
      config.model.experts_per_token, rows, kMaxRows);
}

void check_context_on(const Mesh& mesh, const ContextLength& context, Contradictions& found) {
  const int64_t tensor_ranks = mesh.size(mesh.tensor());
  const int64_t context_ranks = mesh.size(mesh.context());
  const int64_t chunks = context_ranks > 1 ? 2 * context_ranks : 1;
  if (context.positions % chunks == 0 && context.positions / context_ranks % tensor_ranks == 0) {
    return;
  }
  found.add(
      "{} ({}) does not divide over parallel.context ({}) and parallel.tensor ({}): choose a "
      "multiple of {}",
      context.name, context.positions, context_ranks, tensor_ranks, chunks * tensor_ranks);
}

void check_choices(const RunConfig& config, int64_t data_ranks, const ContextLength& context,
                   Contradictions& found) {
  if (!config.model.mixture()) return;
  const double choices = rows_of(config, context) * static_cast<double>(data_ranks);
  if (choices < kMaxRows) return;
  found.add(
      "{} ({}) * {} * {} ({}) * model.experts_per_token ({}) is {:.0f}; it must be less than "
      "{:.0f}: choose a smaller micro-batch or a shorter context",
      context.micro_batch, config.train.micro_batch, data_ranks_text(data_ranks), context.name,
      context.positions, config.model.experts_per_token, choices, kMaxRows);
}

void require_context(const RunConfig& config, const Mesh& mesh, const ContextLength& context) {
  check_range(context);
  Contradictions found;
  check_context(config, context, found);
  check_context_on(mesh, context, found);
  if (found.none()) check_choices(config, data_ranks(mesh), context, found);
  found.require_none();
}

}  // namespace tessera
