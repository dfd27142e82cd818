#include <algorithm>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/file.h"
#include "base/interrupt.h"
#include "base/threads.h"
#include "cli/bench_commands.h"
#include "model/model.h"
#include "plan/block_picture.h"
#include "plan/layer_blocks.h"

namespace tessera {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 24;

void add_precision(CLI::App& command, std::string& precision) {
  command.add_option("--precision", precision, "What is computed in")
      ->check(CLI::IsMember(words_of<Precision>()))
      ->capture_default_str();
}

CLI::Option* add_size(CLI::App& command, const std::string& name, int64_t& size,
                      const std::string& help) {
  return command.add_option(name, size, help)
      ->check(CLI::Range(int64_t{1}, kMostTokens))
      ->capture_default_str();
}

/// The measurement of one sequence length.
struct AttentionResult {
  AttentionBlockSizes sizes;
  BlockProgram block;
  BlockMeasurement measurement;
};

/// Returns a block for each length, in ascending order, not yet measured. In this order, the
/// process's peak memory after a length is the peak of that length.
std::vector<AttentionResult> attention_blocks(AttentionBlockSizes sizes,
                                              std::vector<int64_t> lengths, DType dtype) {
  std::sort(lengths.begin(), lengths.end());
  std::vector<AttentionResult> results;
  for (const int64_t length : lengths) {
    sizes.tokens = length;
    results.push_back({sizes, attention_block(sizes, dtype), {}});
  }
  return results;
}

std::string picture_of(const std::vector<AttentionResult>& results, const MeasuredOn& on) {
  std::vector<std::pair<int64_t, PassRates>> rates;
  for (const AttentionResult& result : results) {
    rates.emplace_back(result.sizes.tokens, pass_rates(result.block, result.measurement));
  }
  return attention_picture(results.front().sizes, rates, on);
}

}  // namespace

void add_bench_moe(CLI::App& bench) {
  struct Arguments {
    MixtureBlockSizes sizes;
    std::string precision = "bf16";
    std::string picture;
    RepeatArguments repeats;
  };
  CLI::App* command = bench.add_subcommand(
      "moe", "One mixture-of-experts layer, forward and backward; the defaults are OLMoE's sizes");
  auto arguments = std::make_shared<Arguments>();
  MixtureBlockSizes& sizes = arguments->sizes;
  add_size(*command, "--tokens", sizes.tokens, "Tokens that go through the layer at once");
  add_size(*command, "--hidden", sizes.hidden, "Entries of a token's vector");
  add_size(*command, "--experts", sizes.experts, "Experts");
  add_size(*command, "--experts-per-token", sizes.experts_per_token, "Experts a token goes to");
  add_size(*command, "--expert-size", sizes.expert_size, "Intermediate size of one expert");
  command->add_flag("--uniform-routing", sizes.uniform_routing,
                    "Every expert gets equally many tokens, whatever the router says");
  add_precision(*command, arguments->precision);
  add_repeat_arguments(*command, arguments->repeats, "--repeats");
  add_picture(*command, arguments->picture);
  command->callback([arguments] {
    require_picture(arguments->picture);
    const InterruptGuard guard;
    const int threads = threads_or_all(arguments->repeats.threads);
    const BlockProgram block =
        mixture_block(arguments->sizes, compute_dtype(from_word<Precision>(arguments->precision)));
    require_memory(block, threads,
                   "lower --tokens, --hidden, --experts, --expert-size or --experts-per-token");
    const BlockMeasurement measurement =
        measure_block(block, threads, arguments->repeats.make("moe"));
    const MeasuredOn on = measured_on(from_word<Precision>(arguments->precision), threads);
    const auto report = arguments->repeats.json ? mixture_json : mixture_text;
    fmt::print("{}", report(arguments->sizes, block, measurement, on));
    if (arguments->picture.empty()) return;
    write_file(arguments->picture, mixture_picture(arguments->sizes, measurement, on));
  });
}

void add_bench_attention(CLI::App& bench) {
  struct Arguments {
    std::vector<int64_t> tokens{1024, 2048, 4096, 8192, 16384};
    AttentionBlockSizes sizes;
    std::string precision = "bf16";
    std::string picture;
    RepeatArguments repeats;
  };
  CLI::App* command = bench.add_subcommand(
      "attention", "Causal attention over one sequence, forward and backward, by its length");
  auto arguments = std::make_shared<Arguments>();
  AttentionBlockSizes& sizes = arguments->sizes;
  command
      ->add_option("--tokens", arguments->tokens,
                   "Lengths of the sequence: 1024,2048,...; a report each")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, kMostTokens))
      ->capture_default_str();
  add_size(*command, "--heads", sizes.heads, "Query heads");
  add_size(*command, "--kv-heads", sizes.kv_heads, "Key-value heads, which divide them");
  add_size(*command, "--head-size", sizes.head_size, "Channels of a head");
  command
      ->add_option("--documents", sizes.documents,
                   "Equal documents that do not attend each other; 0: no document mask")
      ->check(CLI::Range(int64_t{0}, kMostTokens))
      ->capture_default_str();
  add_precision(*command, arguments->precision);
  add_repeat_arguments(*command, arguments->repeats, "--repeats");
  add_picture(*command, arguments->picture);
  command->callback([arguments] {
    require_picture(arguments->picture);
    const InterruptGuard guard;
    const int threads = threads_or_all(arguments->repeats.threads);
    std::vector<AttentionResult> results =
        attention_blocks(arguments->sizes, arguments->tokens,
                         compute_dtype(from_word<Precision>(arguments->precision)));
    for (const AttentionResult& result : results) {
      require_memory(result.block, threads, "lower --tokens, --heads or --head-size");
    }
    for (AttentionResult& result : results) {
      const std::string what = fmt::format("attention of {} tokens", result.sizes.tokens);
      result.measurement = measure_block(result.block, threads, arguments->repeats.make(what));
    }
    const MeasuredOn on = measured_on(from_word<Precision>(arguments->precision), threads);
    const auto report = arguments->repeats.json ? attention_json : attention_text;
    for (const AttentionResult& result : results) {
      fmt::print("{}", report(result.sizes, result.block, result.measurement, on));
    }
    if (arguments->picture.empty()) return;
    write_file(arguments->picture, picture_of(results, on));
  });
}

}  // namespace tessera
