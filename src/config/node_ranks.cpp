#include "config/node_ranks.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "base/error.h"

namespace tessera {
namespace {

/// Returns the number of ranks that share a model, and with it the sequences of a micro-batch.
int64_t ranks_of_a_model(const ParallelSection& parallel) {
  return parallel.tensor * parallel.context * parallel.pipeline;
}

/// Returns the number of ranks that share a stage of a model: all that share the model, without a
/// pipeline.
int64_t ranks_of_a_stage(const ParallelSection& parallel) {
  return parallel.tensor * parallel.context;
}

/// Returns the most ranks of a node that are in one pipeline stage. Only they sum gradients.
int64_t node_ranks_of_a_stage(const ParallelSection& parallel, int64_t node_ranks) {
  if (ranks_of_a_model(parallel) <= node_ranks) return node_ranks / parallel.pipeline;
  return std::min(node_ranks, ranks_of_a_stage(parallel));
}

/// Returns whether a node has whole groups of that many ranks, or a group has whole nodes.
bool fits_nodes(int64_t group_ranks, int64_t node_ranks) {
  return node_ranks % group_ranks == 0 || group_ranks % node_ranks == 0;
}

}  // namespace

FoundNodes find_nodes(const ParallelSection& parallel, std::span<const std::string> machines) {
  const auto ranks = std::ssize(machines);
  const auto one_node = [&](std::string why) { return FoundNodes{ranks, std::move(why)}; };
  const auto first_other = std::ranges::find_if(
      machines, [&](const std::string& machine) { return machine != machines[0]; });
  const auto node_ranks = first_other - machines.begin();  // on the first machine
  if (node_ranks == ranks) return one_node("");
  std::set<std::string> met;  // machines of the ranks so far
  for (std::ptrdiff_t rank = 0; rank < ranks; ++rank) {
    const std::string& machine = machines[static_cast<size_t>(rank)];
    const bool begins_node = rank % node_ranks == 0;
    if (begins_node ? !met.insert(machine).second
                    : machine != machines[static_cast<size_t>(rank) - 1]) {
      return one_node(fmt::format(
          "rank {} is on {}: the machines do not have {} consecutive ranks each, as the first has",
          rank, machine, node_ranks));
    }
  }
  if (ranks % node_ranks != 0) {
    return one_node(fmt::format("the last machine has {} ranks, and the others {}",
                                ranks % node_ranks, node_ranks));
  }
  if (!fits_nodes(ranks_of_a_model(parallel), node_ranks)) {
    return one_node(fmt::format("{} ranks share a model, and a machine has {}",
                                ranks_of_a_model(parallel), node_ranks));
  }
  return {node_ranks, ""};
}

std::vector<int> data_levels(const ParallelSection& parallel, int ranks, int64_t node_ranks) {
  const int64_t model_ranks = ranks_of_a_model(parallel);
  const auto models = static_cast<int>(ranks / model_ranks);
  if (node_ranks == 0 || node_ranks == ranks) return {models};
  if (ranks % node_ranks != 0) {
    throw Error("parallel.node_ranks ({}) does not divide the {} ranks; choose a divisor of {}",
                node_ranks, ranks, ranks);
  }
  if (!fits_nodes(model_ranks, node_ranks)) {
    throw Error(
        "parallel.node_ranks ({}) and the {} ranks that share a model: neither divides the other; "
        "choose a divisor or a multiple of {}, or {} to sum gradients in one step",
        node_ranks, model_ranks, model_ranks, ranks);
  }
  const auto within = static_cast<int>(std::max<int64_t>(1, node_ranks / model_ranks));
  return {within, models / within};
}

std::vector<std::string> sums_across_nodes(const ParallelSection& parallel, int ranks,
                                           int64_t node_ranks) {
  if (node_ranks == 0 || node_ranks == ranks) return {};
  std::vector<std::string> sentences;
  const bool staged = parallel.pipeline > 1;
  const int64_t stage_ranks = ranks_of_a_stage(parallel);
  if (node_ranks % stage_ranks != 0) {
    sentences.push_back(
        fmt::format("{} ranks share a {}, and a node has {}: the sums among those that share "
                    "one are not taken by node",
                    stage_ranks, staged ? "stage of a model" : "model", node_ranks));
  }
  const int64_t summing_ranks = node_ranks_of_a_stage(parallel, node_ranks);
  if (!fits_nodes(parallel.expert, summing_ranks)) {
    sentences.push_back(fmt::format(
        "parallel.expert is {}, and a node has {} ranks{}, of which neither divides the "
        "other: the gradients of experts are not summed by node",
        parallel.expert, summing_ranks, staged ? " of a stage" : ""));
  }
  return sentences;
}

}  // namespace tessera
