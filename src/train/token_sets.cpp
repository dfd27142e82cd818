#include "train/token_sets.h"

#include "base/error.h"
#include "config/mesh_of.h"

namespace tessera {
namespace {

constexpr const char* kBalanceTokens = "balance.tokens";
constexpr const char* kCapacityTokens = "capacity.tokens";
constexpr const char* kBiasTokens = "balance_biases.tokens";

void require_same(const CheckpointState& saved, const char* name, int64_t now, const char* what,
                  const std::string& text_of_now, const std::string& origin) {
  if (!saved.values.contains(name)) return;
  const int64_t before = saved.integer(name);
  if (before == now) return;
  throw Error(
      "{} was saved by a run that takes {} over {} tokens at a time, and here it would be {} ({}), "
      "which is another training; choose --ranks, [parallel] and train.micro_batch (or the "
      "phase's own micro_batch) such that it stays, or start another run",
      origin, what, before, now, text_of_now);
}

}  // namespace

TokenSets token_sets(const RunConfig& config, const Mesh& mesh) {
  if (!config.model.mixture()) return {};
  const int64_t data_rank_tokens = config.train.micro_batch * config.data.context;
  const int64_t all_tokens = data_rank_tokens * data_ranks(mesh);
  const int64_t rank_tokens =
      data_rank_tokens / (mesh.size(mesh.tensor()) * mesh.size(mesh.context()));
  const bool by_rank = config.parallel.capacity_tokens == TokenSet::rank;
  // With global_batch each micro-batch of all ranks sees the step so far, in parts of its size.
  const int64_t balance =
      config.model.balance_tokens == BalanceTokens::rank ? data_rank_tokens : all_tokens;
  return {.balance = config.model.balance_coefficient > 0 ? balance : 0,
          .capacity = config.model.capacity_factor > 0 ? (by_rank ? rank_tokens : all_tokens) : 0,
          .biases = config.model.balance_biases == BiasBalancing::controller ? all_tokens : 0};
}

void put_token_sets(CheckpointState& state, const TokenSets& sets) {
  state.values[kBalanceTokens] = sets.balance;
  state.values[kCapacityTokens] = sets.capacity;
  if (sets.biases > 0) state.values[kBiasTokens] = sets.biases;
}

void require_same_token_sets(const CheckpointState& saved, const RunConfig& config,
                             const Mesh& mesh, const std::string& origin) {
  const TokenSets now = token_sets(config, mesh);
  const std::string numbers =
      fmt::format("micro-batches of {} sequences of {} tokens, {} of {}", config.train.micro_batch,
                  config.data.context, data_ranks_text(data_ranks(mesh)), mesh.ranks());
  require_same(saved, kBalanceTokens, now.balance, "its balance loss", numbers, origin);
  require_same(saved, kCapacityTokens, now.capacity, "the capacity of its experts", numbers,
               origin);
  require_same(saved, kBiasTokens, now.biases, "a step of the controller of its balancing biases",
               numbers, origin);
}

}  // namespace tessera
