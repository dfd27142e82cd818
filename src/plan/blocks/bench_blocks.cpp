#include "plan/blocks/bench_blocks.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/threads.h"

namespace tessera {

MixtureReport bench_mixture(const MixtureBlockSizes& sizes, const BlockBenchOptions& options) {
  const int threads = threads_or_all(options.threads, "--threads");
  Runtime runtime(block_target(threads, options.device));
  MixtureReport report{.sizes = sizes,
                       .block = mixture_block(sizes, compute_dtype(options.precision)),
                       .measurement = {},
                       .balanced = {},
                       .on = {}};
  require_memory(report.block, runtime,
                 "lower --tokens, --hidden, --experts, --expert-size or --experts-per-token");
  if (sizes.skew > 0) {
    MixtureBlockSizes balanced = sizes;
    balanced.skew = 1;
    const BlockProgram block = mixture_block(balanced, compute_dtype(options.precision));
    report.balanced = measure_block(block, runtime, options.repeats("moe, balanced"));
  }
  report.measurement = measure_block(report.block, runtime, options.repeats("moe"));
  report.on = measured_on(options.precision, runtime);
  return report;
}

AttentionReport bench_attention(const AttentionBlockSizes& sizes, std::vector<int64_t> lengths,
                                const BlockBenchOptions& options) {
  const int threads = threads_or_all(options.threads, "--threads");
  Runtime runtime(block_target(threads, options.device));
  std::ranges::sort(lengths);
  AttentionReport report;
  for (const int64_t tokens : lengths) {
    AttentionBlockSizes length_sizes = sizes;
    length_sizes.tokens = tokens;
    report.lengths.push_back(
        {length_sizes, attention_block(length_sizes, compute_dtype(options.precision)), {}});
    require_memory(report.lengths.back().block, runtime, "lower --tokens, --heads or --head-size");
  }
  for (AttentionReport::Length& length : report.lengths) {
    const Repeats repeats =
        options.repeats(fmt::format("attention of {} tokens", length.sizes.tokens));
    length.measurement = measure_block(length.block, runtime, repeats);
  }
  report.on = measured_on(options.precision, runtime);
  return report;
}

}  // namespace tessera
