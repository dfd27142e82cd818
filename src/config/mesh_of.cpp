// A mesh is laid out from the sizes in [parallel]. Then the model's matrices, heads and experts,
// the contexts and, for training, the batches are checked against the numbers of ranks. All
// problems are collected, so that one error names them together.

#include "config/mesh_of.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "comm/processes.h"
#include "config/check_context.h"
#include "config/check_pipeline.h"
#include "config/levels.h"
#include "config/phases.h"
#include "config/shard_groups.h"
#include "state/shard_axes.h"

namespace tessera {
namespace {

/// A number of the configuration with its key.
struct Number {
  const char* key;
  int64_t value;
};

/// Adds a contradiction unless `divisor` divides `number`.
void check_divides(Contradictions& found, const Number& divisor, const Number& number) {
  if (number.value % divisor.value == 0) return;
  found.add("{} ({}) does not divide {} ({}): {} / {} leaves {}; change one of them", divisor.key,
            divisor.value, number.key, number.value, number.value, divisor.value,
            number.value % divisor.value);
}

void check_heads(const ModelConfig& model, const Number& tensor, Contradictions& found) {
  if (model.attention == AttentionKind::compressed_convolutional) {
    // A key head goes through the convolutions together with its query heads.
    check_divides(found, tensor, {"model.kv_heads", model.kv_heads});
    return;
  }
  check_divides(found, tensor, {"model.heads", model.heads});
  if (model.kv_heads % tensor.value == 0 || tensor.value % model.kv_heads == 0) return;
  found.add("{} ({}) and model.kv_heads ({}): neither divides the other; change one of them",
            tensor.key, tensor.value, model.kv_heads);
}

/// Adds a contradiction if there are more ranks than elements. The ranks' pieces may differ in
/// size, but none may be empty.
void check_enough(Contradictions& found, const Number& ranks, const Number& number) {
  if (number.value >= ranks.value) return;
  found.add(
      "{} ({}) is more than {} ({}): each of these ranks has a part of it; change one of them",
      ranks.key, ranks.value, number.key, number.value);
}

void check_matrices(const ModelConfig& model, const Number& tensor, Contradictions& found) {
  check_enough(found, tensor, {"model.vocabulary_size", model.vocabulary_size});
  if (!model.mixture() || model.dense_layers > 0) {
    check_enough(found, tensor, {"model.feed_forward_size", model.feed_forward_size});
  }
  if (model.shared_experts > 0) {
    check_enough(
        found, tensor,
        {"model.shared_experts * model.expert_size", model.shared_experts * model.expert_size});
  }
}

void check_experts(const RunConfig& config, Contradictions& found) {
  const int64_t ranks = config.parallel.expert;
  if (ranks == 1) return;
  if (!config.model.mixture()) {
    found.add("parallel.expert ({}): the model has no experts; set it to 1", ranks);
    return;
  }
  check_divides(found, {"parallel.expert", ranks}, {"model.experts", config.model.experts});
}

void check_batches(const RunPhase& phase, int64_t ranks, Contradictions& found) {
  const TrainSection& train = phase.config.train;
  const int64_t sequences = train.micro_batch * ranks;  // of one micro-batch on all ranks
  if (train.global_batch % sequences == 0) return;
  found.add("{} ({}) * {} is {}, which does not divide {} ({}); choose a multiple of {}",
            phase.micro_batch_key, train.micro_batch, data_ranks_text(ranks), sequences,
            phase.global_batch_key, train.global_batch, sequences);
}

/// Returns the sizes above 1, each as "parallel.tensor (2)".
std::vector<std::string> above_one(std::initializer_list<Number> sizes) {
  std::vector<std::string> named;
  for (const Number& size : sizes) {
    if (size.value > 1) named.push_back(fmt::format("{} ({})", size.key, size.value));
  }
  return named;
}

/// Throws Error unless the product of the sizes divides the ranks. The error leaves out sizes of 1.
void require_divides_ranks(std::initializer_list<Number> sizes, int ranks) {
  int64_t product = 1;
  for (const Number& size : sizes) product *= size.value;
  if (ranks % product == 0) return;
  const std::vector<std::string> named = above_one(sizes);
  const bool single = named.size() == 1;
  const auto first = std::ranges::find_if(sizes, [](const Number& size) { return size.value > 1; });
  throw Error("{}{} does not divide --ranks ({}); give --ranks a multiple of {}, or change {}",
              join(named, " * "), single ? std::string() : fmt::format(" is {}, which", product),
              ranks, product, single ? first->key : "the sizes");
}

/// The levels of the network that were found for a training; none for a mesh that does not train.
using Found = std::optional<std::span<const MeshLevel>>;

/// Returns the levels of the network on which a mesh trains.
std::vector<MeshLevel> levels_of(const RunConfig& config, int ranks, const Found& found) {
  if (!found) return {};
  std::vector<MeshLevel> levels = config.parallel.levels.empty()
                                      ? std::vector(found->begin(), found->end())
                                      : listed_levels(config.parallel, ranks);
  add_shard_groups(config, ranks, levels);
  return levels;
}

/// Adds a contradiction if [shard] names levels that the mesh lacks, or breaks the dependency rule.
void check_shard(const RunConfig& config, const Mesh& mesh, Contradictions& found) {
  try {
    shard_axes(config.shard, mesh);
  } catch (const Error& error) {
    found.add("{}", error.what());
  }
}

/// Returns the mesh of `ranks` ranks. Adds a contradiction for each part of the model that does not
/// divide over the ranks.
Mesh lay_out_mesh(const RunConfig& config, int ranks, const Found& found_levels,
                  Contradictions& found) {
  const ParallelSection& parallel = config.parallel;
  if (ranks < 1) throw Error("--ranks is {}; it must be at least 1", ranks);
  const Number tensor{"parallel.tensor", parallel.tensor};
  const Number pipeline{"parallel.pipeline", parallel.pipeline};
  require_divides_ranks({tensor, {"parallel.context", parallel.context}, pipeline}, ranks);
  require_divides_ranks({{"parallel.expert", parallel.expert}, pipeline}, ranks);
  const std::vector<MeshLevel> levels = levels_of(config, ranks, found_levels);
  Mesh mesh({.tensor = static_cast<int>(parallel.tensor),
             .context = static_cast<int>(parallel.context),
             .pipeline = static_cast<int>(parallel.pipeline),
             .data = data_levels(parallel, ranks, levels),
             .expert = static_cast<int>(parallel.expert),
             .levels = levels});
  check_heads(config.model, tensor, found);
  check_matrices(config.model, tensor, found);
  check_experts(config, found);
  for (const RunPhase& phase : phases_of(config)) check_context_on(mesh, phase.context(), found);
  return mesh;
}

/// Calls work(). Its errors begin with the name of the configuration's file.
template <typename Work>
auto naming_file(const RunConfig& config, Work&& work) {
  try {
    return work();
  } catch (const Error& error) {
    if (config.file.empty()) throw;
    throw Error("{}: {}", config.file, error.what());
  }
}

/// Returns a mesh after all checks. Errors begin with the name of the configuration's file.
Mesh checked_mesh(const RunConfig& config, int ranks, const Found& found_levels) {
  return naming_file(config, [&] {
    Contradictions found;
    Mesh mesh = lay_out_mesh(config, ranks, found_levels, found);
    if (found_levels) {
      check_shard(config, mesh, found);
      for (const RunPhase& phase : phases_of(config)) {
        check_batches(phase, data_ranks(mesh), found);
        check_choices(phase.config, data_ranks(mesh), phase.context(), found);
        check_schedule(phase, mesh, found);
      }
    } else {
      check_pipeline(config, found);  // validate() has not seen this [parallel] with this model
    }
    found.require_none();
    return mesh;
  });
}

}  // namespace

int64_t data_ranks(const Mesh& mesh) { return mesh.group_ranks(mesh.data()); }

int64_t data_rank(const MeshRank& mesh_rank) {
  int64_t index = 0;
  int64_t stride = 1;
  for (const Axis level : mesh_rank.mesh.data()) {
    index += stride * mesh_rank.mesh.coordinate(mesh_rank.rank, level);
    stride *= mesh_rank.mesh.size(level);
  }
  return index;
}

ExpertLayout expert_layout(const ParallelSection& parallel) {
  return {.exchange = parallel.expert_exchange,
          .rows_bound = parallel.expert_rows_bound,
          .capacity_tokens = parallel.capacity_tokens};
}

std::string data_ranks_text(int64_t ranks) {
  return ranks == 1 ? "1 data-parallel rank" : fmt::format("{} data-parallel ranks", ranks);
}

Mesh mesh_for_inference(const RunConfig& config, int ranks) {
  return checked_mesh(config, ranks, std::nullopt);
}

Mesh mesh_of(const RunConfig& config, int ranks, std::span<const MeshLevel> found) {
  return checked_mesh(config, ranks, found);
}

Mesh mesh_of(const RunConfig& config, int ranks) {
  return mesh_of(config, ranks, levels_of_one_machine(ranks));
}

Mesh mesh_of_one_rank(const RunConfig& config) {
  const ParallelSection& parallel = config.parallel;
  const std::vector<std::string> named = above_one({{"parallel.tensor", parallel.tensor},
                                                    {"parallel.context", parallel.context},
                                                    {"parallel.pipeline", parallel.pipeline},
                                                    {"parallel.expert", parallel.expert}});
  if (named.empty()) return mesh_of(config, 1);
  return naming_file(config, [&]() -> Mesh {
    throw Error("{}: this command runs one rank; set {} to 1", join(named, " and "),
                named.size() == 1 ? "it" : "them");
  });
}

Mesh mesh_of_started_ranks(const RunConfig& config, Processes* processes, int threads,
                           const std::function<void(const std::string& sentence)>& say) {
  const ParallelSection& parallel = config.parallel;
  const int ranks = processes == nullptr ? threads : processes->ranks();
  FoundLevels found{.levels = levels_of_one_machine(ranks), .why_not = ""};
  // Even with parallel.levels: the processes have not yet compared their configurations.
  if (processes != nullptr) found = find_levels(parallel, processes->places());
  Mesh mesh = mesh_of(config, ranks, found.levels);
  if (processes != nullptr && processes->rank() != 0) return mesh;
  if (parallel.levels.empty() && !found.why_not.empty()) {
    say("gradients are summed over all machines in one step: " + found.why_not);
  }
  for (const std::string& sentence : sums_across_levels(parallel, ranks, mesh.levels())) {
    say(sentence);
  }
  return mesh;
}

}  // namespace tessera
