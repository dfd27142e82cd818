#include "verify/verify.h"

#include <algorithm>
#include <functional>
#include <string>

#include "base/error.h"
#include "base/rank_threads.h"
#include "base/usable_memory.h"
#include "config/mesh_of.h"
#include "ops/gemm/gemm_plan.h"
#include "ops/host_target.h"
#include "verify/layout_processes.h"
#include "verify/trial_batches.h"
#include "verify/verify_memory.h"

namespace tessera {
namespace {

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
StreamComparison compare_values(const LayoutTrial& of, const TrialBatches& batches) {
  const auto first_of = [](const StepBatches& steps) { return StepBatches{{steps[0][0]}}; };
  TrialBatches first{.whole = first_of(batches.whole), .parts = {}};
  for (const StepBatches& part : batches.parts) first.parts.push_back(first_of(part));
  LayoutTrial trial = of;
  trial.compute = DType::f64;
  trial.streams = true;
  trial.model.balance_tokens = BalanceTokens::micro_batch;
  trial.experts.capacity_tokens = TokenSet::micro_batch;
  const LayoutResults layout = try_layout(trial, first);
  trial.mesh = Mesh();
  const LayoutResults one = run_layout(trial, first);
  return compare_streams(one.streams[0], of.mesh, layout.streams, Verification::kBound);
}

using OnPart = std::function<void(const std::string& part)>;
/// The ranks of the layout.
struct LayoutRanks {
  std::function<LayoutResults(const LayoutTrial& trial)> run;
  int of_machine;  ///< that share the threads of a trial
};

/// One rank that begins each step with the weights of the layout.
LayoutResults run_following(const LayoutTrial& of, DType compute, const TrialBatches& batches,
                            const LayoutResults& layout) {
  LayoutTrial trial = trial_of_one(of, compute);
  trial.followed = layout.gradients;
  return run_layout(trial, batches);
}

/// One rank that adds up in the order of the trial's data ranks and nodes, and rounds what would
/// travel so, against the layout.
BitComparison compare_bits(const LayoutTrial& of, const TrialBatches& batches,
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

/// Notes what needs no other run to be compared with, and keeps what is wrong of an earlier run.
void note_layout(Verification& found, const LayoutResults& layout) {
  if (!found.other_copies) found.other_copies = layout.other_copies;
  if (!found.other_results) found.other_results = layout.other_results;
  if (!found.stale_weight) found.stale_weight = first_stale_weight(layout);
  if (found.gradient_bytes.equal()) found.gradient_bytes = layout.gradient_bytes;
}

/// Compares in the precision of the trial, with the choices of experts that were made in f64. In
/// f64 there is nothing more to compare than bits.
void compare_rounded(Verification& found, const TrialBatches& batches, const LayoutRanks& ranks,
                     const OnPart& begins) {
  const LayoutTrial& trial = found.trial;
  const bool rounds = trial.compute != DType::f64;
  if (!rounds && !adds_up_parts(trial)) return;
  const std::string precision(dtype_name(trial.compute));
  begins(precision + ", the layout");
  const LayoutResults layout = ranks.run(trial);
  note_layout(found, layout);
  if (rounds) {
    begins("fp64, one rank with the weights of " + precision);
    const LayoutResults exact = run_following(trial, DType::f64, batches, layout);
    begins(precision + ", one rank");
    const LayoutResults one = run_following(trial, trial.compute, batches, layout);
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

/// Compares in f64. Returns the choices of experts of one rank.
std::vector<StepChoices> compare_exact(Verification& found, const TrialBatches& batches,
                                       const LayoutRanks& ranks, const OnPart& begins) {
  LayoutTrial trial = found.trial;
  trial.compute = DType::f64;
  begins("fp64, the layout");
  const LayoutResults layout = ranks.run(trial);
  note_layout(found, layout);
  begins("fp64, one rank");
  const LayoutResults one = run_following(trial, DType::f64, batches, layout);
  found.exact = deviations(one, layout);
  return one.choices;
}

/// Compares one rank with a layout.
Verification compare(const LayoutTrial& trial, const TrialBatches& batches,
                     const LayoutRanks& ranks, const OnPart& begins) {
  require_shared_batches(trial.mesh, batches);
  Verification found{.trial = trial,
                     .steps = static_cast<int>(batches.whole.size()),
                     .micro_batches = static_cast<int>(batches.whole.front().size())};
  found.trial.pinned = compare_exact(found, batches, ranks, begins);
  compare_rounded(found, batches, ranks, begins);
  return found;
}

TrialBatches batches_of(const LayoutTrial& trial, int steps) {
  return loader_batches(trial, steps, kTrialMicroBatches);
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

Verification verify(const RunConfig& config, const Mesh& mesh, const VerifyOptions& options) {
  const std::vector<TrialSize> sizes = trial_sizes(config, mesh, options.context);
  const int steps = options.steps;
  const size_t within = first_within_work(config, mesh, sizes, steps, options.most_work);
  const size_t chosen = first_that_fits(config, mesh, sizes, steps, usable_memory().bytes, within);
  Verification found = verify(trial_of(config, mesh, sizes[chosen]), steps, options.progress);
  found.cut = cut_text(config, mesh, sizes, within, chosen, steps, options.most_work);
  return found;
}

Verification verify(const LayoutTrial& trial, int steps, const OnPart& on_part) {
  require_same_tokens(trial);
  require_verify_memory(trial, steps);
  return verify(trial, batches_of(trial, steps), on_part);
}

Verification verify(const LayoutTrial& trial, const TrialBatches& batches, const OnPart& on_part) {
  const OnPart begins = on_part ? on_part : [](const std::string&) {};
  const LayoutRanks ranks{[&](const LayoutTrial& of) { return try_layout(of, batches); },
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
  LayoutProcesses ranks(config, mesh, processes);
  const std::vector<TrialSize> sizes = trial_sizes(config, mesh, options.context);
  const size_t within = first_within_work(config, mesh, sizes, options.steps, options.most_work);
  const size_t chosen = ranks.largest(first_that_fits(
      config, mesh, sizes, options.steps, usable_memory().bytes, within, processes.ranks_here()));
  const LayoutTrial trial = trial_of(config, mesh, sizes[chosen]);
  require_same_tokens(trial);
  const TrialBatches batches = batches_of(trial, options.steps);
  ranks.begin(trial, batches);
  if (!ranks.first()) {
    ranks.serve();
    return std::nullopt;
  }
  const OnPart begins = options.progress ? options.progress : [](const std::string&) {};
  const LayoutRanks layout{[&](const LayoutTrial& of) { return ranks.run(of); },
                           ranks.of_machine()};
  Verification found = compare(trial, batches, layout, begins);
  found.cut = cut_text(config, mesh, sizes, within, chosen, options.steps, options.most_work);
  ranks.finish();
  return found;
}

}  // namespace tessera
