#include "train/verify.h"

#include <algorithm>
#include <functional>
#include <string>

#include "base/error.h"
#include "base/rank_threads.h"
#include "config/check_context.h"
#include "config/mesh_of.h"
#include "ops/gemm/gemm_plan.h"
#include "ops/host_target.h"
#include "train/layout_processes.h"
#include "train/verify_memory.h"

namespace tessera {
namespace {

constexpr int kMicroBatches = 2;  // enough to see that gradients are added up

LayoutTrial trial_of(RunConfig config, const Mesh& mesh, const VerifyOptions& options) {
  if (config.run.device != Device::cpu) {
    throw Error(
        "run.device is \"{}\": verify computes in fp64, on the processor; set it to \"cpu\"",
        word(config.run.device));
  }
  config.train.micro_batch = std::min<int64_t>(config.train.micro_batch, 2);
  if (options.context > 0) require_context(config, mesh, {"--context", options.context});
  return {.model = config.model,
          .optimizer = config.optimizer,
          .recompute = recompute_of(config.train.recompute),
          .size = {.sequences = config.train.micro_batch * data_ranks(mesh),
                   .context = options.context > 0 ? options.context : short_context(config),
                   .document_mask = config.data.document_mask},
          .compute = compute_dtype(config.train.precision),
          .seed = config.train.seed,
          .mesh = mesh,
          .experts = expert_layout(config.parallel),
          .shard = config.shard,
          .threads = static_cast<int>(config.run.threads),
          .rank_timeout = std::chrono::seconds(config.run.rank_timeout)};
}

/// Which tokens the results of a token depend on: those of its data rank's part of a micro-batch,
/// or those of all ranks.
struct TokensSeen {
  bool of_part = false;
  bool of_all = false;
};

TokensSeen tokens_seen(const LayoutTrial& trial) {
  const ModelConfig& model = trial.model;
  TokensSeen seen;
  if (!model.mixture()) return seen;
  const auto note = [&](bool of_part) { (of_part ? seen.of_part : seen.of_all) = true; };
  if (model.balance_coefficient > 0) note(model.balance_tokens == BalanceTokens::rank);
  if (model.balance_biases == BiasBalancing::controller) note(false);
  if (model.capacity_factor > 0) note(trial.experts.capacity_tokens == TokenSet::rank);
  return seen;
}

/// One rank must see the tokens together that the layout sees together.
void require_same_tokens(const LayoutTrial& trial) {
  const bool drops_own =
      trial.model.capacity_factor > 0 && trial.experts.capacity_tokens == TokenSet::rank;
  if (drops_own && data_ranks(trial.mesh) != trial.mesh.ranks()) {
    throw Error(
        "parallel.capacity_tokens is \"{}\" and model.capacity_factor is {}: ranks that share "
        "sequences and drop by their own tokens are another model than one rank; to verify the "
        "rest, set it to \"micro_batch\"",
        word(trial.experts.capacity_tokens), trial.model.capacity_factor);
  }
  const TokensSeen seen = tokens_seen(trial);
  if (data_ranks(trial.mesh) == 1 || !seen.of_part || !seen.of_all) return;
  throw Error(
      "model.balance_tokens is \"{}\", parallel.capacity_tokens is \"{}\" and "
      "model.balance_biases is \"{}\": with {} data-parallel ranks, one rank cannot have both sets "
      "of tokens; to verify the rest, set the first two to \"micro_batch\"",
      word(trial.model.balance_tokens), word(trial.experts.capacity_tokens),
      word(trial.model.balance_biases), data_ranks(trial.mesh));
}

/// The trial that one rank runs to be compared, in a precision. It divides the micro-batch of all
/// ranks where they see only their own part.
LayoutTrial trial_of_one(const LayoutTrial& of, DType compute) {
  LayoutTrial trial = of;
  trial.mesh = Mesh();
  trial.shard.optimizer = ShardOver::none;
  trial.compute = compute;
  trial.parts = tokens_seen(of).of_part ? data_ranks(of.mesh) : 1;
  return trial;
}

/// Runs the first micro-batch once more and compares all values. A difference that needs more than
/// one micro-batch is not found. One rank does not divide it here: in both, the balance loss and
/// the capacity are of all its tokens.
StreamComparison compare_values(const LayoutTrial& of,
                                std::span<const std::vector<Batch>> batches) {
  const std::vector<std::vector<Batch>> once{{batches[0][0]}};
  LayoutTrial trial = of;
  trial.compute = DType::f64;
  trial.streams = true;
  trial.model.balance_tokens = BalanceTokens::micro_batch;
  trial.experts.capacity_tokens = TokenSet::micro_batch;
  const LayoutResults layout = run_layout(trial, once);
  trial.mesh = Mesh();
  const LayoutResults one = run_layout(trial, once);
  return compare_streams(one.streams[0], of.mesh, layout.streams, Verification::kBound);
}

using Batches = std::vector<std::vector<Batch>>;
using OnPart = std::function<void(const std::string& part)>;
/// The ranks of the layout.
struct LayoutRanks {
  std::function<LayoutResults(const LayoutTrial& trial)> run;
  int of_machine;  ///< that share the threads of a trial
};

/// One rank that adds up in the order of the trial's data ranks and nodes, and rounds what would
/// travel so, against the layout.
BitComparison compare_bits(const LayoutTrial& of, const Batches& batches,
                           const LayoutResults& layout, int ranks_of_machine) {
  LayoutTrial trial = trial_of_one(of, of.compute);
  // It has all threads, unless products have other bits then.
  if (!rows_keep_their_bits(host_target(1))) {
    trial.threads = threads_of_rank(of.threads, ranks_of_machine);
  }
  trial.parts = data_ranks(of.mesh);
  for (const Axis level : of.mesh.data()) trial.part_order.levels.push_back(of.mesh.size(level));
  trial.part_order.wire = of.shard.gradients_wire;
  return {first_other_bits(run_layout(trial, batches), layout)};
}

/// Compares in the precision of the trial, with the choices of experts that were made in f64. In
/// f64 there is nothing more to compare than bits.
void compare_rounded(Verification& found, const Batches& batches, const LayoutResults& exact,
                     const LayoutRanks& ranks, const OnPart& begins) {
  LayoutTrial& trial = found.trial;
  trial.pinned = exact.choices;
  const bool rounds = trial.compute != DType::f64;
  if (!rounds && !adds_up_parts(trial)) return;
  const std::string precision(dtype_name(trial.compute));
  begins(precision + ", the layout");
  const LayoutResults layout = ranks.run(trial);
  if (rounds) {
    begins(precision + ", one rank");
    const LayoutResults one = run_layout(trial_of_one(trial, trial.compute), batches);
    found.rounded = deviations(one, layout);
    found.expected = deviations(exact, one);
    const bool bf16 = trial.shard.gradients_wire == WireFormat::bf16;
    found.rounding =
        largest_rounding(exact, one, layout, trial.compute, bf16 ? DType::bf16 : trial.compute);
  }
  if (!adds_up_parts(trial)) return;
  begins(precision + ", one rank in the order of the layout");
  found.bits = compare_bits(trial, batches, layout, ranks.of_machine);
}

Batches batches_of(const LayoutTrial& trial, int steps) {
  return random_batches(trial.size, trial.model.vocabulary_size, steps, kMicroBatches, trial.seed);
}

/// Compares one rank with a layout.
Verification compare(const LayoutTrial& trial, const Batches& batches, const LayoutRanks& ranks,
                     const OnPart& begins) {
  Verification found{
      .trial = trial, .steps = static_cast<int>(batches.size()), .micro_batches = kMicroBatches};
  begins("fp64, one rank");
  const LayoutResults exact = run_layout(trial_of_one(trial, DType::f64), batches);
  LayoutTrial layout = trial;
  layout.compute = DType::f64;
  begins("fp64, the layout");
  found.exact = deviations(exact, ranks.run(layout));
  compare_rounded(found, batches, exact, ranks, begins);
  return found;
}

}  // namespace

bool Verification::same() const {
  return std::ranges::all_of(exact, [](const Deviation& deviation) {
    return deviation.relative <= (deviation.quantity == "router counts" ? 0 : kBound);
  });
}

bool adds_up_parts(const LayoutTrial& trial) { return why_other_bits(trial).empty(); }

std::string why_other_bits(const LayoutTrial& trial) {
  if (data_ranks(trial.mesh) != trial.mesh.ranks() || trial.mesh.size(trial.mesh.expert()) != 1) {
    return "ranks that share a model or its experts split sums within a pass";
  }
  if (tokens_seen(trial).of_all) {
    return "the balance loss, the balancing biases or the capacity are of the tokens of all ranks";
  }
  return "";
}

int64_t short_context(const RunConfig& config) {
  const ParallelSection& parallel = config.parallel;
  const int64_t pieces = (parallel.context > 1 ? 2 * parallel.context : 1) * parallel.tensor;
  constexpr int64_t kShort = 64;
  return std::min(config.data.context, (kShort + pieces - 1) / pieces * pieces);
}

Verification verify(const RunConfig& config, const Mesh& mesh, const VerifyOptions& options) {
  return verify(trial_of(config, mesh, options), options.steps, options.progress);
}

Verification verify(const LayoutTrial& trial, int steps,
                    const std::function<void(const std::string&)>& on_part) {
  const OnPart begins = on_part ? on_part : [](const std::string&) {};
  require_same_tokens(trial);
  require_verify_memory(trial);
  const Batches batches = batches_of(trial, steps);
  const LayoutRanks ranks{[&](const LayoutTrial& of) { return run_layout(of, batches); },
                          trial.mesh.ranks()};
  Verification found = compare(trial, batches, ranks, begins);
  if (!found.same()) {
    begins("fp64, which value differs first");
    found.values = compare_values(trial, batches);
  }
  return found;
}

std::optional<Verification> verify_as_process(const RunConfig& config, const Mesh& mesh,
                                              const VerifyOptions& options, Processes& processes) {
  processes.set_timeout(std::chrono::seconds(config.run.rank_timeout));
  const LayoutTrial trial = trial_of(config, mesh, options);
  require_same_tokens(trial);
  const Batches batches = batches_of(trial, options.steps);
  LayoutProcesses ranks(trial, batches, processes);
  ranks.require_ready(config);
  if (!ranks.first()) {
    ranks.serve();
    return std::nullopt;
  }
  const OnPart begins = options.progress ? options.progress : [](const std::string&) {};
  const LayoutRanks layout{[&](const LayoutTrial& of) { return ranks.run(of); },
                           ranks.of_machine()};
  const Verification found = compare(trial, batches, layout, begins);
  ranks.finish();
  return found;
}

}  // namespace tessera
