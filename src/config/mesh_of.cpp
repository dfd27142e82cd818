#include "config/mesh_of.h"

#include <algorithm>
#include <initializer_list>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "config/check_context.h"

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
    found.add("parallel.expert ({}): the model has no experts; set it to 1", ranks);
    return;
  }
  require_divides(found, {"parallel.expert", ranks}, {"model.experts", config.model.experts});
}

void check_batches(const TrainSection& train, int64_t data, Contradictions& found) {
  if (train.global_batch % (train.micro_batch * data) == 0) return;
  found.add(
      "train.micro_batch ({}) * {} is {}, which does not divide train.global_batch ({}); choose a "
      "multiple of {}",
      train.micro_batch, data_ranks_text(data), train.micro_batch * data, train.global_batch,
      train.micro_batch * data);
}

/// Throws Error unless the product of sizes divides the ranks. It names those above 1.
void require_divides_ranks(std::initializer_list<Number> sizes, int ranks) {
  std::vector<std::string> named;
  std::string change;
  int64_t product = 1;
  for (const Number& size : sizes) {
    product *= size.value;
    if (size.value == 1) continue;
    named.push_back(fmt::format("{} ({})", size.key, size.value));
    if (named.size() == 1) change = size.key;
  }
  if (ranks % product == 0) return;
  const bool one = named.size() == 1;
  throw Error("{}{} does not divide --ranks ({}); give --ranks a multiple of {}, or change {}",
              join(named, " * "), one ? std::string() : fmt::format(" is {}, which", product),
              ranks, product, one ? change : "the sizes");
}

/// Whether a node has whole groups of ranks that share a model, or such a group whole nodes.
bool fits_nodes(const ParallelSection& parallel, int64_t node_ranks) {
  const int64_t model = ranks_of_a_model(parallel);
  return node_ranks % model == 0 || model % node_ranks == 0;
}

/// The levels of the data axis: its ranks within a node, and those of other nodes.
std::vector<int> data_levels(const ParallelSection& parallel, int ranks) {
  const int64_t model = ranks_of_a_model(parallel);
  const auto data = static_cast<int>(ranks / model);
  const int64_t node = parallel.node_ranks;
  if (node == 0 || node == ranks) return {data};
  if (ranks % node != 0) {
    throw Error("parallel.node_ranks ({}) does not divide the {} ranks; choose a divisor of {}",
                node, ranks, ranks);
  }
  if (!fits_nodes(parallel, node)) {
    throw Error(
        "parallel.node_ranks ({}) and the {} ranks that share a model: neither divides the other; "
        "choose a divisor or a multiple of {}, or {} to sum gradients in one step",
        node, model, model, ranks);
  }
  const auto within = static_cast<int>(std::max<int64_t>(1, node / model));
  return {within, data / within};
}

/// The mesh of so many ranks, and what of the model does not divide over them.
Mesh laid_out(const RunConfig& config, int ranks, Contradictions& found) {
  const ParallelSection& parallel = config.parallel;
  if (ranks < 1) throw Error("--ranks is {}; it must be at least 1", ranks);
  const Number tensor{"parallel.tensor", parallel.tensor};
  const Number pipeline{"parallel.pipeline", parallel.pipeline};
  require_divides_ranks({tensor, {"parallel.context", parallel.context}, pipeline}, ranks);
  require_divides_ranks({{"parallel.expert", parallel.expert}, pipeline}, ranks);
  Mesh mesh({.tensor = static_cast<int>(parallel.tensor),
             .context = static_cast<int>(parallel.context),
             .pipeline = static_cast<int>(parallel.pipeline),
             .data = data_levels(parallel, ranks),
             .expert = static_cast<int>(parallel.expert)});
  check_heads(config.model, tensor, found);
  check_matrices(config.model, tensor, found);
  check_experts(config, found);
  check_context_on(mesh, context_of(config), found);
  return mesh;
}

/// A mesh of which all is checked. Errors begin with the file, as those about its keys do.
Mesh checked_mesh(const RunConfig& config, int ranks, bool trains) {
  try {
    Contradictions found;
    Mesh mesh = laid_out(config, ranks, found);
    if (trains) {
      check_batches(config.train, data_ranks(mesh), found);
      check_choices(config, data_ranks(mesh), context_of(config), found);
    }
    found.require_none();
    return mesh;
  } catch (const Error& error) {
    if (config.file.empty()) throw;
    throw Error("{}: {}", config.file, error.what());
  }
}

}  // namespace

int64_t ranks_of_a_model(const ParallelSection& parallel) {
  return parallel.tensor * parallel.context * parallel.pipeline;
}

std::string set_node_ranks(ParallelSection& parallel, std::span<const std::string> machines) {
  if (parallel.node_ranks != 0 || machines.empty()) return "";
  const auto ranks = std::ssize(machines);
  const auto first_other = std::ranges::find_if(
      machines, [&](const std::string& machine) { return machine != machines[0]; });
  const auto node = first_other - machines.begin();
  parallel.node_ranks = ranks;
  if (node == ranks) return "";
  std::set<std::string> known;
  for (std::ptrdiff_t rank = 0; rank < ranks; ++rank) {
    const std::string& machine = machines[static_cast<size_t>(rank)];
    const bool begins = rank % node == 0;
    if (begins ? !known.insert(machine).second
               : machine != machines[static_cast<size_t>(rank) - 1]) {
      return fmt::format(
          "rank {} is on {}: the machines do not have {} consecutive ranks each, as the first has",
          rank, machine, node);
    }
  }
  if (ranks % node != 0) {
    return fmt::format("the last machine has {} ranks, and the others {}", ranks % node, node);
  }
  if (!fits_nodes(parallel, node)) {
    return fmt::format("{} ranks share a model, and a machine has {}", ranks_of_a_model(parallel),
                       node);
  }
  parallel.node_ranks = node;
  return "";
}

int64_t data_ranks(const Mesh& mesh) {
  int64_t ranks = 1;
  for (const Axis level : mesh.data()) ranks *= mesh.size(level);
  return ranks;
}

int64_t data_rank(const MeshRank& place) {
  int64_t number = 0;
  int64_t inner = 1;
  for (const Axis level : place.mesh.data()) {
    number += inner * place.mesh.coordinate(place.rank, level);
    inner *= place.mesh.size(level);
  }
  return number;
}

ExpertLayout expert_layout(const ParallelSection& parallel) {
  return {.exchange = parallel.expert_exchange,
          .rows_bound = parallel.expert_rows_bound,
          .capacity_tokens = parallel.capacity_tokens};
}

std::string data_ranks_text(int64_t ranks) {
  return ranks == 1 ? "1 data-parallel rank" : fmt::format("{} data-parallel ranks", ranks);
}

Mesh mesh_of_model(const RunConfig& config, int ranks) {
  return checked_mesh(config, ranks, false);
}

Mesh mesh_of(const RunConfig& config, int ranks) { return checked_mesh(config, ranks, true); }

}  // namespace tessera
