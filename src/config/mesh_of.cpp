#include "config/mesh_of.h"

#include "base/contradictions.h"
#include "base/error.h"

namespace tessera {
namespace {

/// A number of the configuration, by its key.
struct Number {
  const char* key;
  int64_t value;
};

void require_divides(Contradictions& found, const Number& divisor, const Number& number) {
  if (number.value % divisor.value == 0) return;
  found.add("{} ({}) does not divide {} ({}): {} / {} leaves {}; change one of them", divisor.key,
            divisor.value, number.key, number.value, number.value, divisor.value,
            number.value % divisor.value);
}

void check_heads(const ModelConfig& model, const Number& tensor, Contradictions& found) {
  require_divides(found, tensor, {"model.heads", model.heads});
  if (model.kv_heads % tensor.value == 0 || tensor.value % model.kv_heads == 0) return;
  found.add("{} ({}) and model.kv_heads ({}): neither divides the other; change one of them",
            tensor.key, tensor.value, model.kv_heads);
}

/// Pieces may be of different sizes, but none is empty.
void require_enough(Contradictions& found, const Number& ranks, const Number& number) {
  if (number.value >= ranks.value) return;
  found.add(
      "{} ({}) is more than {} ({}): each of these ranks has a part of it; change one of them",
      ranks.key, ranks.value, number.key, number.value);
}

void check_matrices(const ModelConfig& model, const Number& tensor, Contradictions& found) {
  require_enough(found, tensor, {"model.vocabulary_size", model.vocabulary_size});
  if (!model.mixture() || model.dense_layers > 0) {
    require_enough(found, tensor, {"model.feed_forward_size", model.feed_forward_size});
  }
  if (model.shared_experts > 0) {
    require_enough(
        found, tensor,
        {"model.shared_experts * model.expert_size", model.shared_experts * model.expert_size});
  }
}

void check_experts(const RunConfig& config, Contradictions& found) {
  const int64_t ranks = config.parallel.expert;
  if (ranks == 1) return;
  if (!config.model.mixture()) {
    found.add("parallel.expert is {}, and the model has no experts; set it to 1", ranks);
    return;
  }
  require_divides(found, {"parallel.expert", ranks}, {"model.experts", config.model.experts});
  const double bound = config.parallel.expert_rows_bound;
  if (bound > 0 && bound < 1) {
    found.add(
        "parallel.expert_rows_bound is {}: an even load would exceed it; choose 1 or more, or 0 "
        "for "
        "as many rows as can come",
        bound);
  }
}

/// Positions are split in zigzag over the context axis, each rank having two chunks, and what a
/// rank has is split again over the tensor axis.
void check_context(const RunConfig& config, Contradictions& found) {
  const ParallelSection& parallel = config.parallel;
  const int64_t chunks = parallel.context > 1 ? 2 * parallel.context : 1;
  const int64_t context = config.data.context;
  if (context % chunks == 0 && context / parallel.context % parallel.tensor == 0) return;
  found.add(
      "data.context ({}) does not divide over parallel.context ({}) and parallel.tensor ({}): "
      "choose a multiple of {}",
      context, parallel.context, parallel.tensor, chunks * parallel.tensor);
}

void check_batches(const TrainSection& train, int64_t data, Contradictions& found) {
  if (train.global_batch % (train.micro_batch * data) == 0) return;
  found.add(
      "train.micro_batch ({}) times {} data-parallel ranks is {}, which does not divide "
      "train.global_batch ({}); choose a multiple of {}",
      train.micro_batch, data, train.micro_batch * data, train.global_batch,
      train.micro_batch * data);
}

/// The choices of all ranks' tokens have 32-bit numbers: so do the rows that a rank gets, and the
/// counts of experts, which are summed over the ranks.
void check_choices(const RunConfig& config, int64_t data, Contradictions& found) {
  if (!config.model.mixture()) return;
  const double choices = static_cast<double>(config.train.micro_batch) * static_cast<double>(data) *
                         static_cast<double>(config.data.context) *
                         static_cast<double>(config.model.experts_per_token);
  if (choices < 0x1p31) return;
  found.add(
      "train.micro_batch ({}) * {} data-parallel ranks * data.context ({}) * "
      "model.experts_per_token ({}) is {:.0f}; it must be less than {}: choose a smaller "
      "micro-batch or a shorter context",
      config.train.micro_batch, data, config.data.context, config.model.experts_per_token, choices,
      int64_t{1} << 31);
}

/// The mesh of so many ranks, and what of the model does not divide over them.
Mesh laid_out(const RunConfig& config, int ranks, Contradictions& found) {
  const ParallelSection& parallel = config.parallel;
  const int64_t each = ranks_of_a_model(parallel);
  if (ranks < 1) throw Error("--ranks is {}; it must be at least 1", ranks);
  if (ranks % each != 0) {
    throw Error(
        "parallel.tensor ({}) * parallel.context ({}) * parallel.pipeline ({}) is {}, which does "
        "not divide --ranks ({}); give a multiple of {}, or change the sizes",
        parallel.tensor, parallel.context, parallel.pipeline, each, ranks, each);
  }
  Mesh mesh({.tensor = static_cast<int>(parallel.tensor),
             .context = static_cast<int>(parallel.context),
             .pipeline = static_cast<int>(parallel.pipeline),
             .data = {static_cast<int>(ranks / each)},
             .expert = static_cast<int>(parallel.expert)});
  const Number tensor{"parallel.tensor", parallel.tensor};
  check_heads(config.model, tensor, found);
  check_matrices(config.model, tensor, found);
  check_experts(config, found);
  check_context(config, found);
  return mesh;
}

}  // namespace

int64_t ranks_of_a_model(const ParallelSection& parallel) {
  return parallel.tensor * parallel.context * parallel.pipeline;
}

int64_t data_ranks(const Mesh& mesh) {
  int64_t ranks = 1;
  for (const Axis level : mesh.data()) ranks *= mesh.size(level);
  return ranks;
}

ExpertLayout expert_layout(const ParallelSection& parallel) {
  return {.exchange = parallel.expert_exchange,
          .rows_bound = parallel.expert_rows_bound,
          .capacity_tokens = parallel.capacity_tokens};
}

Mesh mesh_of_model(const RunConfig& config, int ranks) {
  Contradictions found;
  Mesh mesh = laid_out(config, ranks, found);
  found.require_none();
  return mesh;
}

Mesh mesh_of(const RunConfig& config, int ranks) {
  Contradictions found;
  Mesh mesh = laid_out(config, ranks, found);
  check_batches(config.train, data_ranks(mesh), found);
  check_choices(config, data_ranks(mesh), found);
  found.require_none();
  return mesh;
}

}  // namespace tessera
