// Compares compressed attention with plain attention. attention_accounts() writes programs of one
// layer for both, and adds up the costs of their nodes and the bytes of their states.
// attention_table() and attention_json() show the accounts.

#include "plan/explain_attention.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "model/model.h"
#include "plan/programs.h"
#include "program/program.h"

namespace tessera {
namespace {

/// Returns plain attention as wide as the stream, with `group` query heads per key head.
ModelConfig plain_attention(ModelConfig config, int64_t group) {
  config.attention = AttentionKind::grouped_query;
  config.head_dim = config.head_size();
  config.heads = config.hidden_size / config.head_dim;
  config.kv_heads = config.heads / group;
  return config;
}

/// Returns the bytes that a layer keeps while it decodes, with caches of `capacity` positions.
int64_t state_bytes(const ModelConfig& layer, DType compute, int64_t capacity) {
  int64_t bytes = 0;
  const DecodingProgram decoding = write_decoding(layer, compute, 1, capacity);
  for (const ValueInfo& value : decoding.program.values()) {
    if (value.kind == ValueKind::state) bytes += value.spec.bytes();
  }
  return bytes;
}

/// Adds the forward FLOPs per token of a layer's attention to the account, by kind of operation.
void add_attention_flops(const ModelConfig& layer, DType compute, int64_t context,
                         AttentionAccount& account) {
  const EvaluationProgram evaluation =
      write_evaluation(layer, compute, {.sequences = 1, .context = context});
  for (const Node& node : evaluation.program.nodes()) {
    if (node.block != Block::attention) continue;
    const double flops = node_cost(evaluation.program, node).flops / static_cast<double>(context);
    if (flops == 0) continue;
    const std::string_view name = node.operation->name();
    if (name == "attention") {
      account.score_flops += flops;
    } else if (name == "grouped_convolution") {
      account.convolution_flops += flops;
    } else {
      TESSERA_CHECK(name == "linear", "{} has FLOPs in attention", name);
      account.projection_flops += flops;
    }
  }
}

AttentionAccount account_of(const RunConfig& config, ModelConfig layer, std::string kind) {
  layer.layers = 1;
  layer.dense_layers = 0;
  const DType compute = compute_dtype(config.train.precision);
  AttentionAccount account{
      .kind = std::move(kind), .heads = layer.heads, .kv_heads = layer.kv_heads};
  add_attention_flops(layer, compute, config.data.context, account);
  // The difference between capacities 2 and 1 is the bytes per position.
  const int64_t with_one_position = state_bytes(layer, compute, 1);
  account.cache_bytes_per_token = state_bytes(layer, compute, 2) - with_one_position;
  account.cache_constant_bytes = with_one_position - account.cache_bytes_per_token;
  return account;
}

/// The numbers of an account, divided by those of the first account.
struct Ratios {
  double flops;
  double cache;
};
Ratios ratios(const AttentionAccount& account, const AttentionAccount& first) {
  return {account.flops() / first.flops(), static_cast<double>(account.cache_bytes_per_token) /
                                               static_cast<double>(first.cache_bytes_per_token)};
}

/// Returns the notes below the table. They explain the numbers and the comparison.
std::string notes_below(const RunConfig& config, size_t accounts) {
  const ModelConfig& model = config.model;
  std::string text = fmt::format(
      "(of one layer, on all ranks together; FLOPs of the forward pass, on the average over a "
      "context of {};\n a cache in {}, and what a sequence keeps beside it, whatever its length;\n",
      config.data.context, dtype_name(compute_dtype(config.train.precision)));
  if (accounts == 1) {
    return text +
           fmt::format(
               " compared with nothing: hidden_size {} is no multiple of the head size {})\n",
               model.hidden_size, model.head_size());
  }
  text += fmt::format(
      " compared with plain attention of the same hidden_size and head size: {} / {} = {} query "
      "heads;\n ",
      model.hidden_size, model.head_size(), model.hidden_size / model.head_size());
  if (accounts == 3) {
    text += fmt::format("grouped-query: {} of them to a key head, as here; ",
                        model.heads / model.kv_heads);
  }
  return text + "multi-head: a key head for each (ZAYA1, appendix C))\n";
}

}  // namespace

std::vector<AttentionAccount> attention_accounts(const RunConfig& config) {
  const ModelConfig model = inference_config(config.model);
  if (model.attention != AttentionKind::compressed_convolutional) return {};
  std::vector<AttentionAccount> accounts{account_of(config, model, "compressed convolutional")};
  if (model.hidden_size % model.head_size() != 0) return accounts;
  const int64_t group = model.heads / model.kv_heads;
  if (group > 1 && model.hidden_size / model.head_size() % group == 0) {
    accounts.push_back(account_of(config, plain_attention(model, group), "grouped-query"));
  }
  accounts.push_back(account_of(config, plain_attention(model, 1), "multi-head"));
  return accounts;
}

std::string attention_table(const RunConfig& config) {
  const std::vector<AttentionAccount> accounts = attention_accounts(config);
  if (accounts.empty()) return "";
  Table table({"attention", "query heads", "key heads", "projections", "convolutions",
               "scores and values", "FLOPs a token", "times", "cache a token", "times",
               "a sequence"});
  for (const AttentionAccount& account : accounts) {
    const Ratios ratio = ratios(account, accounts.front());
    table.add({account.kind, fmt::format("{}", account.heads), fmt::format("{}", account.kv_heads),
               format_count(account.projection_flops), format_count(account.convolution_flops),
               format_count(account.score_flops), format_count(account.flops()),
               fmt::format("{:.2f}", ratio.flops), format_bytes(account.cache_bytes_per_token),
               fmt::format("{:.2f}", ratio.cache), format_bytes(account.cache_constant_bytes)});
  }
  return table.text() + notes_below(config, accounts.size());
}

nlohmann::ordered_json attention_json(const RunConfig& config) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  const std::vector<AttentionAccount> accounts = attention_accounts(config);
  for (const AttentionAccount& account : accounts) {
    const Ratios ratio = ratios(account, accounts.front());
    json.push_back({{"kind", account.kind},
                    {"heads", account.heads},
                    {"kv_heads", account.kv_heads},
                    {"projection_flops_per_token", account.projection_flops},
                    {"convolution_flops_per_token", account.convolution_flops},
                    {"score_flops_per_token", account.score_flops},
                    {"flops_per_token", account.flops()},
                    {"times_flops", ratio.flops},
                    {"cache_bytes_per_token", account.cache_bytes_per_token},
                    {"times_cache", ratio.cache},
                    {"cache_bytes_per_sequence", account.cache_constant_bytes}});
  }
  return json;
}

}  // namespace tessera
