#include "config/warnings.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/text.h"
#include "config/effects.h"
#include "config/phases.h"
#include "config/pipeline_of.h"
#include "state/shard_axes.h"

namespace tessera {
namespace {

/// Returns a sentence about the steps that learn nothing; empty if there are none.
std::string idle_steps(const std::vector<RunPhase>& phases) {
  std::vector<std::string> steps;
  for (const RunPhase& phase : phases) {
    if (learns_nothing(phase)) steps.push_back(std::to_string(phase.first_step));
  }
  if (steps.empty()) return "";
  return fmt::format(
      "nothing is learned in step {}: a learning rate that falls within one step has its minimum "
      "there, which is 0; set minimum_learning_rate, schedule = \"constant\" or more steps",
      enumeration(steps));
}

/// Returns what Llama 3 would set otherwise for the micro-batches of a phase (§3.1.3): 1F1B with
/// whole gradients (ZeRO-1) if there are twice as many as stages, and all-forward-all-backward with
/// sharded gradients (ZeRO-2) if there are fewer. With the latter schedule both are alike to it
/// (its figure 4). Empty if it would set nothing otherwise, or if the choice is not between them.
std::string better_pair(const RunPhase& phase, const Mesh& mesh) {
  const RunConfig& config = phase.config;
  const ParallelSection& parallel = config.parallel;
  const ShardAxes axes = shard_axes(config.shard, mesh);
  const auto is_cut = [&](int axes_of_part) {
    return cut_ranks(mesh, axes_of_part, MeshView::dense) > 1;
  };
  if (parallel.pipeline == 1 || !is_cut(axes.optimizer) || is_cut(axes.weights)) return "";
  const std::optional<ScheduleKind> kind = schedule_kind(parallel);
  const bool all_forward = kind == ScheduleKind::all_forward_all_backward;
  if (!all_forward && kind != ScheduleKind::one_forward_one_backward &&
      kind != ScheduleKind::interleaved) {
    return "";
  }
  const int micro_batches = pipeline_shape(config, mesh).micro_batches;
  const bool many = micro_batches >= 2 * parallel.pipeline;
  std::vector<std::string> changes;
  if (many && all_forward) {
    const bool divides = micro_batches % parallel.pipeline == 0;
    const char* const schedule = parallel.virtual_stages == 1 ? "1f1b"
                                 : divides                    ? "interleaved"
                                                              : "flexible";
    changes.push_back(fmt::format("parallel.schedule = \"{}\"", schedule));
  }
  if (many && is_cut(axes.gradients)) changes.emplace_back("shard.gradients = \"none\"");
  if (!many && !all_forward) {
    changes.emplace_back("parallel.schedule = \"gpipe\"");
    if (!is_cut(axes.gradients) && config.shard.expert_aware) {
      changes.push_back(fmt::format("shard.gradients = {}", config.shard.optimizer.text()));
    }
  }
  if (changes.empty()) return "";
  return fmt::format(
      "{} ({}) is {} micro-batches a step for {} pipeline stages; Llama 3 (section 3.1.3) sets {} "
      "where there are {} twice as many as stages",
      phase.global_batch_key, config.train.global_batch, micro_batches, parallel.pipeline,
      enumeration(changes), many ? "at least" : "fewer than");
}

}  // namespace

std::vector<std::string> config_warnings(const RunConfig& config, const Mesh& mesh) {
  std::vector<std::string> sentences = without_effect(config, &mesh);
  const std::vector<RunPhase> phases = phases_of(config);
  const auto add = [&](std::string sentence) {
    const bool is_new = std::ranges::find(sentences, sentence) == sentences.end();
    if (!sentence.empty() && is_new) sentences.push_back(std::move(sentence));
  };
  add(idle_steps(phases));
  for (const RunPhase& phase : phases) add(better_pair(phase, mesh));
  return sentences;
}

}  // namespace tessera
