#include "plan/blocks/bench_blocks.h"

#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/file.h"
#include "base/interrupt.h"
#include "cli/bench_commands.h"
#include "cli/options.h"

namespace tessera {
namespace {

// The commands `bench moe` and `bench attention`, which measure one block of a model.

constexpr int64_t kMostTokens = int64_t{1} << 24;  // the limit of every size

void add_size(CLI::App& command, const std::string& name, int64_t& size, const std::string& help) {
  add_number(command, name, size, 1, kMostTokens, help);
}

/// The arguments that both blocks have in common.
struct BlockArguments {
  std::string precision{word(Precision::bf16)};
  std::string device{word(Device::cpu)};
  std::string picture;  // empty: none
  RepeatArguments repeats;
};

void add_block_arguments(CLI::App& command, BlockArguments& arguments) {
  add_word<Precision>(command, "--precision", arguments.precision,
                      "The precision that is computed in");
  add_word<Device>(command, "--device", arguments.device, "The device that is measured");
  add_repeat_arguments(command, arguments.repeats, "--repeats");
  add_picture(command, arguments.picture);
}

/// Measures, prints and draws a block. `measure` takes BlockBenchOptions and returns the report.
template <typename Measure>
void run(const BlockArguments& arguments, const Measure& measure) {
  const auto device = from_word<Device>(arguments.device);
  const Precision precision = precision_on(device, arguments.precision);
  require_picture(arguments.picture);
  const InterruptGuard guard;
  const auto report = measure(BlockBenchOptions{
      .precision = precision,
      .threads = arguments.repeats.threads,
      .device = device,
      .repeats = [&](const std::string& name) { return arguments.repeats.make_repeats(name); }});
  fmt::print("{}", arguments.repeats.json ? report.json() : report.text());
  if (!arguments.picture.empty()) write_file(arguments.picture, report.picture());
}

}  // namespace

void add_bench_moe(CLI::App& bench) {
  struct Arguments : BlockArguments {
    MixtureBlockSizes sizes;
  };
  CLI::App* command = bench.add_subcommand(
      "moe", "One mixture-of-experts layer, forward and backward; the defaults are OLMoE's sizes");
  auto arguments = std::make_shared<Arguments>();
  MixtureBlockSizes& sizes = arguments->sizes;
  add_size(*command, "--tokens", sizes.tokens, "Tokens that go through the layer at once");
  add_size(*command, "--hidden", sizes.hidden, "Entries of a token's vector");
  add_size(*command, "--experts", sizes.experts, "Experts");
  add_size(*command, "--experts-per-token", sizes.experts_per_token,
           "Experts that a token goes to");
  add_size(*command, "--expert-size", sizes.expert_size, "Intermediate size of one expert");
  CLI::Option* const uniform =
      command->add_flag("--uniform-routing", sizes.uniform_routing,
                        "Every expert gets equally many tokens, whatever the router says");
  command
      ->add_option(
          "--skew", sizes.skew,
          "The fullest expert gets this many times the balanced load, whatever the router "
          "says, and the others fall off by a power law; a balanced load is measured beside "
          "it. At most experts / experts a token")
      ->check(CLI::Range(1.0, 1e6))
      ->excludes(uniform);
  add_block_arguments(*command, *arguments);
  command->callback([arguments] {
    run(*arguments,
        [&](const BlockBenchOptions& options) { return bench_mixture(arguments->sizes, options); });
  });
}

void add_bench_attention(CLI::App& bench) {
  struct Arguments : BlockArguments {
    std::vector<int64_t> tokens{1024, 2048, 4096, 8192, 16384};
    AttentionBlockSizes sizes;
  };
  CLI::App* command = bench.add_subcommand(
      "attention", "Causal attention over one sequence, forward and backward, by its length");
  auto arguments = std::make_shared<Arguments>();
  AttentionBlockSizes& sizes = arguments->sizes;
  add_list(*command, "--tokens", arguments->tokens,
           "Lengths of the sequence: 1024,2048,...; a report each")
      ->check(CLI::Range(int64_t{1}, kMostTokens));
  add_size(*command, "--heads", sizes.heads, "Query heads");
  add_size(*command, "--kv-heads", sizes.kv_heads, "Key-value heads, which divide the query heads");
  add_size(*command, "--head-size", sizes.head_size, "Channels of a head");
  add_number(*command, "--documents", sizes.documents, 0, kMostTokens,
             "Equal documents that do not attend each other; 0: no document mask");
  add_block_arguments(*command, *arguments);
  command->callback([arguments] {
    run(*arguments, [&](const BlockBenchOptions& options) {
      return bench_attention(arguments->sizes, arguments->tokens, options);
    });
  });
}

}  // namespace tessera
