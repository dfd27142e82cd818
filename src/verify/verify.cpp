#include "verify/verify.h"

#include <algorithm>

#include "base/error.h"
#include "base/threads.h"
#include "base/usable_memory.h"
#include "config/mesh_of.h"
#include "ops/gemm/gemm_plan.h"
#include "ops/host_target.h"
#include "state/shard_axes.h"
#include "verify/layout_processes.h"
#include "verify/trial_batches.h"
#include "verify/verify_memory.h"

// compare() trains a layout and one rank: first in f64, where any mistake shows (compare_exact()),
// then in the run's precision, where only the size of the rounding and the bits can be compared
// (compare_rounded()). If f64 differs, compare_values() finds the first such value in the model.

namespace tessera {
namespace {

/// The tokens on which a token's result depends, by a balance loss, balancing biases or a capacity.
struct TokensSeen {
  bool part = false;  // the tokens of its data rank's part of a micro-batch
  bool all = false;   // the tokens of all ranks
};

TokensSeen tokens_seen(const LayoutTrial& trial) {
  const ModelConfig& model = trial.model;
  TokensSeen seen;
  if (!model.mixture()) return seen;
  const auto note = [&](bool one_part) { (one_part ? seen.part : seen.all) = true; };
  if (model.balance_coefficient > 0) note(model.balance_tokens == BalanceTokens::rank);
  if (model.balance_biases == BiasBalancing::controller) note(false);
  if (model.capacity_factor > 0) note(trial.experts.capacity_tokens == TokenSet::rank);
  return seen;
}

/// Returns whether several ranks compute each pass of a chunk together, and so share sequences.
bool shares_passes(const Mesh& mesh) {
  return data_ranks(mesh) * mesh.size(mesh.pipeline()) != mesh.ranks();
}

/// Throws Error if weights are rounded to travel, or gradients to integers: the layout is then
/// another model than one rank. Formats in which nothing travels are passed over.
void require_exact_wires(const LayoutTrial& trial) {
  const CutUnitOptions& options = trial.shard.unit_options;
  const ShardAxes& axes = trial.shard.axes;
  const auto among_ranks = [&](int count) {
    return cut_ranks(trial.mesh, count, MeshView::dense) > 1 ||
           (trial.model.mixture() && cut_ranks(trial.mesh, count, MeshView::expert) > 1);
  };
  const auto refuse = [](const char* key, const Wire& wire) {
    throw Error(
        "shard.{} is \"{}\": a rank that computes with rounded weights, or sums rounded to "
        "integers, is far from what verify compares; to verify the rest, set it to \"fp32\"",
        key, word(wire.format));
  };
  const bool gathers = among_ranks(axes.weights);
  if (gathers && options.weights_wire.format != WireFormat::fp32) {
    refuse("weights_wire", options.weights_wire);
  }
  const bool has_copies = gathers && options.gathers_again && among_ranks(axes.secondary);
  if (has_copies && options.secondary_wire.format != WireFormat::fp32) {
    refuse("secondary_wire", options.secondary_wire);
  }
  if (among_ranks(all_axes(trial.mesh)) && options.gradients_wire.is_quantised()) {
    refuse("gradients_wire", options.gradients_wire);
  }
}

/// Throws Error unless one rank can see together the tokens that the layout sees together.
void require_same_tokens(const LayoutTrial& trial) {
  const bool drops_by_rank =
      trial.model.capacity_factor > 0 && trial.experts.capacity_tokens == TokenSet::rank;
  if (drops_by_rank && shares_passes(trial.mesh)) {
    throw Error(
        "parallel.capacity_tokens is \"{}\" and model.capacity_factor is {}: ranks that share "
        "sequences and drop by their own tokens are another model than one rank; to verify the "
        "rest, set it to \"micro_batch\"",
        word(trial.experts.capacity_tokens), trial.model.capacity_factor);
  }
  const TokensSeen seen = tokens_seen(trial);
  if (data_ranks(trial.mesh) == 1 || !seen.part || !seen.all) return;
  throw Error(
      "model.balance_tokens is \"{}\", parallel.capacity_tokens is \"{}\" and "
      "model.balance_biases is \"{}\": with {} data-parallel ranks, one rank cannot have both sets "
      "of tokens; to verify the rest, set the first two to \"micro_batch\"",
      word(trial.model.balance_tokens), word(trial.experts.capacity_tokens),
      word(trial.model.balance_biases), data_ranks(trial.mesh));
}

/// Returns the trial of one rank that a layout is compared with. The rank divides the micro-batch
/// into the parts of data ranks if each of these sees its own part only.
LayoutTrial one_rank_trial(const LayoutTrial& layout_trial, DType compute) {
  LayoutTrial trial = layout_trial;
  trial.mesh = Mesh();
  trial.shard.axes = {};
  trial.compute = compute;
  trial.parts = tokens_seen(layout_trial).part ? data_ranks(layout_trial.mesh) : 1;
  return trial;
}

/// Runs the first micro-batch once more in f64 and compares all values. Here one rank does not
/// divide the micro-batch: in both trials the balance loss and the capacity are over all tokens.
StreamComparison compare_values(const LayoutTrial& layout_trial, const TrialBatches& batches) {
  // A pipeline's schedule is for all micro-batches of a step.
  const auto first_of = [&](const StepBatches& steps) {
    return layout_trial.pipeline.has_chunks() ? StepBatches{steps[0]} : StepBatches{{steps[0][0]}};
  };
  TrialBatches first{.whole = first_of(batches.whole), .parts = {}};
  for (const StepBatches& part : batches.parts) first.parts.push_back(first_of(part));
  LayoutTrial trial = layout_trial;
  trial.compute = DType::f64;
  trial.streams = true;
  trial.model.balance_tokens = BalanceTokens::micro_batch;
  trial.experts.capacity_tokens = TokenSet::micro_batch;
  const LayoutResults layout = try_layout(trial, first);
  trial.mesh = Mesh();
  const LayoutResults one_rank = run_layout(trial, first);
  return compare_streams(one_rank.streams[0], layout_trial.mesh, layout.streams,
                         Verification::kBound);
}

using OnPart = std::function<void(const std::string& part)>;
/// The means to run a trial on the ranks of the layout.
struct LayoutRanks {
  std::function<LayoutResults(const LayoutTrial& trial)> run;
  int ranks_on_machine;  ///< the number of ranks that share the threads of a trial
};

/// Runs one rank that begins each step with the weights of the layout.
LayoutResults run_following(const LayoutTrial& layout_trial, DType compute,
                            const TrialBatches& batches, const LayoutResults& layout) {
  LayoutTrial trial = one_rank_trial(layout_trial, compute);
  trial.followed = layout.gradients;
  return run_layout(trial, batches);
}

/// Compares the layout with one rank that adds up in the order of the trial's data ranks and nodes,
/// and rounds what they would send. Returns what differs first; empty if nothing does.
std::string compare_bits(const LayoutTrial& layout_trial, const TrialBatches& batches,
                         const LayoutResults& layout, int ranks_on_machine) {
  LayoutTrial trial = one_rank_trial(layout_trial, layout_trial.compute);
  // The rank has all threads, unless that changes the bits of products.
  if (!rows_keep_their_bits(host_target(1))) {
    trial.threads = threads_of_rank(layout_trial.threads, ranks_on_machine);
  }
  trial.parts = data_ranks(layout_trial.mesh);
  for (const Axis level : layout_trial.mesh.data())
    trial.sum_order.levels.push_back(layout_trial.mesh.size(level));
  trial.sum_order.wire = layout_trial.shard.unit_options.gradients_wire.format;
  trial.sum_order.rounds_total =
      cut_ranks(layout_trial.mesh, layout_trial.shard.axes.optimizer, MeshView::dense) == 1;
  LayoutResults one_rank = run_layout(trial, batches);
  LayoutResults compared = layout;
  if (layout_trial.pipeline.has_chunks()) {
    // A chunk adds up the routers' losses of its own layers, one rank those of all layers at once.
    for (LayoutResults* results : {&one_rank, &compared}) {
      for (LayoutStep& step : results->steps) step.results.balance = step.results.router_z = 0;
    }
  }
  return first_different_bits(one_rank, compared).value_or("");
}

/// Records the mistakes that a run of the layout shows by itself. Keeps those of an earlier run.
void note_layout(Verification& result, const LayoutResults& layout) {
  if (!result.unequal_copies) result.unequal_copies = layout.unequal_copies;
  if (!result.unequal_results) result.unequal_results = layout.unequal_results;
  if (!result.stale_weight) result.stale_weight = first_stale_weight(layout);
  if (result.gradient_bytes.equal()) result.gradient_bytes = layout.gradient_bytes;
}

/// Compares in the precision of the trial, with the choices of experts that were made in f64. If
/// the precision is f64, only bits are left to compare.
void compare_rounded(Verification& result, const TrialBatches& batches, const LayoutRanks& ranks,
                     const OnPart& announce) {
  const LayoutTrial& trial = result.trial;
  const bool rounds = trial.compute != DType::f64;
  const bool compares_bits = why_bits_not_compared(trial).empty();
  if (!rounds && !compares_bits) return;
  const std::string precision(dtype_name(trial.compute));
  announce(precision + ", the layout");
  const LayoutResults layout = ranks.run(trial);
  note_layout(result, layout);
  if (rounds) {
    announce("fp64, one rank with the weights of " + precision);
    const LayoutResults exact = run_following(trial, DType::f64, batches, layout);
    announce(precision + ", one rank");
    const LayoutResults one_rank = run_following(trial, trial.compute, batches, layout);
    result.rounded = deviations(one_rank, layout);
    result.expected = deviations(exact, one_rank);
    const bool bf16 = trial.shard.unit_options.gradients_wire.format == WireFormat::bf16;
    result.rounding = largest_rounding(exact, one_rank, layout, trial.compute,
                                       bf16 ? DType::bf16 : trial.compute);
  }
  if (!compares_bits) return;
  announce(precision + ", one rank in the order of the layout");
  result.bits = compare_bits(trial, batches, layout, ranks.ranks_on_machine);
}

/// Compares in f64. Returns the choices of experts that one rank made.
std::vector<StepChoices> compare_exact(Verification& result, const TrialBatches& batches,
                                       const LayoutRanks& ranks, const OnPart& announce) {
  LayoutTrial trial = result.trial;
  trial.compute = DType::f64;
  announce("fp64, the layout");
  const LayoutResults layout = ranks.run(trial);
  note_layout(result, layout);
  announce("fp64, one rank");
  const LayoutResults one_rank = run_following(trial, DType::f64, batches, layout);
  result.exact = deviations(one_rank, layout);
  return one_rank.choices;
}

/// Compares one rank with a layout.
Verification compare(const LayoutTrial& trial, const TrialBatches& batches,
                     const LayoutRanks& ranks, const OnPart& announce) {
  require_shared_batches(trial.mesh, batches);
  Verification result{.trial = trial,
                      .steps = static_cast<int>(batches.whole.size()),
                      .micro_batches = static_cast<int>(batches.whole.front().size())};
  result.trial.pinned = compare_exact(result, batches, ranks, announce);
  compare_rounded(result, batches, ranks, announce);
  return result;
}

}  // namespace

bool Verification::same() const {
  return std::ranges::all_of(exact, [](const Deviation& deviation) {
    return deviation.relative <= (deviation.quantity == "router counts" ? 0 : kBound);
  });
}

std::string why_bits_not_compared(const LayoutTrial& trial) {
  if (shares_passes(trial.mesh) || trial.mesh.size(trial.mesh.expert()) != 1) {
    return "ranks that share a model or its experts split sums within a pass";
  }
  if (cut_ranks(trial.mesh, trial.shard.axes.gradients, MeshView::dense) > 1) {
    return "gradients are summed over ranks in each micro-batch";
  }
  if (trial.pipeline.has_chunks() && trial.model.tied_head) {
    return "two chunks of the pipeline have the table of the tied head, and add up its gradient";
  }
  if (data_ranks(trial.mesh) > 1 && tokens_seen(trial).all) {
    return "the balance loss, the balancing biases or the capacity are of the tokens of all ranks";
  }
  return "";
}

Verification verify(const RunConfig& config, const Mesh& mesh, const VerifyOptions& options) {
  const std::vector<TrialSize> sizes = trial_sizes(config, mesh, options.context);
  const int steps = options.steps;
  const size_t within = first_within_work(config, mesh, sizes, steps, options.work_limit);
  const size_t chosen = first_that_fits(config, mesh, sizes, steps, usable_memory().bytes, within);
  Verification result = verify(trial_of(config, mesh, sizes[chosen]), steps, options.progress);
  result.cut = cut_text(config, mesh, sizes, within, chosen, steps, options.work_limit);
  return result;
}

Verification verify(const LayoutTrial& trial, int steps, const OnPart& on_part) {
  require_exact_wires(trial);
  require_same_tokens(trial);
  require_verify_memory(trial, steps);
  return verify(trial, loader_batches(trial, steps, trial.micro_batches), on_part);
}

Verification verify(const LayoutTrial& trial, const TrialBatches& batches, const OnPart& on_part) {
  const OnPart announce = on_part ? on_part : [](const std::string&) {};
  const LayoutRanks ranks{
      [&](const LayoutTrial& layout_trial) { return try_layout(layout_trial, batches); },
      trial.mesh.ranks()};
  Verification result = compare(trial, batches, ranks, announce);
  if (!result.same()) {
    announce("fp64, which value differs first");
    result.values = compare_values(trial, batches);
  }
  return result;
}

std::optional<Verification> verify_as_process(const RunConfig& config, const Mesh& mesh,
                                              const VerifyOptions& options, Processes& processes) {
  processes.set_timeout(std::chrono::seconds(config.run.rank_timeout));
  processes.check_calls(config.run.check_calls);
  LayoutProcesses ranks(config, mesh, processes);
  const std::vector<TrialSize> sizes = trial_sizes(config, mesh, options.context);
  const size_t within = first_within_work(config, mesh, sizes, options.steps, options.work_limit);
  const size_t chosen = ranks.largest_of_ranks(first_that_fits(
      config, mesh, sizes, options.steps, usable_memory().bytes, within, processes.ranks_here()));
  const LayoutTrial trial = trial_of(config, mesh, sizes[chosen]);
  require_exact_wires(trial);
  require_same_tokens(trial);
  const TrialBatches batches = loader_batches(trial, options.steps, trial.micro_batches);
  ranks.begin(trial, batches);
  if (!ranks.is_first()) {
    ranks.serve();
    return std::nullopt;
  }
  const OnPart announce = options.progress ? options.progress : [](const std::string&) {};
  const LayoutRanks layout{[&](const LayoutTrial& layout_trial) { return ranks.run(layout_trial); },
                           ranks.ranks_on_machine()};
  Verification result = compare(trial, batches, layout, announce);
  result.cut = cut_text(config, mesh, sizes, within, chosen, options.steps, options.work_limit);
  ranks.finish();
  return result;
}

}  // namespace tessera
