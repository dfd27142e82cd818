// The conditions that effects.h declares. Those of the learning rate are in course_effects.cpp.

#include "config/effects.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/words.h"
#include "config/pipeline_of.h"
#include "state/shard_axes.h"

namespace tessera::effects {
namespace {

/// Returns the last step of this start of the run. train.stop_after may end it early.
int64_t last_step(const Circumstances& here) {
  const TrainSection& train = here.config.train;
  return train.stop_after > 0 ? train.stop_after : train.steps;
}

/// Returns why the run does not reach a step; empty if it does.
std::string why_not_reached(const Circumstances& here, int64_t step) {
  if (step <= last_step(here)) return "";
  return fmt::format("the run ends after step {}", last_step(here));
}

}  // namespace

std::string always(const Circumstances&) { return ""; }

std::string on_cuda(const Circumstances& here) {
  if (here.config.run.device == Device::cuda) return "";
  return fmt::format("run.device is \"{}\", and only \"cuda\" reads it",
                     word(here.config.run.device));
}

std::string libraries_choose_orders(const Circumstances& here) {
  const Device device = here.config.run.device;
  if (device == Device::cuda) return "";
  if (device == Device::cpu) return on_a_device(here);
  return several_ranks(here);
}

std::string on_a_device(const Circumstances& here) {
  return here.config.run.device == Device::cpu ? "run.device is \"cpu\"" : "";
}

std::string several_ranks(const Circumstances& here) {
  return here.mesh != nullptr && here.mesh->ranks() == 1 ? "the run has one rank" : "";
}

std::string traces_a_step(const Circumstances& here) {
  const std::string why = why_not_reached(here, here.config.run.trace_step);
  return why.empty() ? "" : why + ": no trace will be written";
}

std::string stops_before_the_end(const Circumstances& here) {
  const TrainSection& train = here.config.train;
  return train.stop_after == train.steps ? "the run ends after this step anyway" : "";
}

std::string evaluates(const Circumstances& here) {
  return here.config.train.evaluate_every == 0 ? "train.evaluate_every is 0" : "";
}

std::string draws_weights(const Circumstances& here) {
  return here.config.checkpoint.initial.empty() ? "" : "checkpoint.initial gives the weights";
}

std::string recomputes(const Circumstances& here) {
  const std::vector<RecomputedBlock>& blocks = here.config.train.recompute;
  const bool experts_alone = std::ranges::all_of(
      blocks, [](RecomputedBlock block) { return block == RecomputedBlock::experts; });
  return !blocks.empty() && experts_alone ? mixture(here) : "";
}

std::string recomputes_on_stages(const Circumstances& here) {
  if (here.config.train.recompute.empty()) return "train.recompute is empty";
  return here.config.parallel.pipeline == 1 ? "parallel.pipeline is 1" : "";
}

std::string keeps_a_checkpoint(const Circumstances& here) {
  return why_not_reached(here, here.config.checkpoint.keep_every);
}

std::string mixture(const Circumstances& here) {
  return here.config.model.mixture() ? "" : "model.experts is 0, a dense model";
}

std::string drops_tokens(const Circumstances& here) {
  const ModelConfig& model = here.config.model;
  if (!model.mixture()) return mixture(here);
  // An even load is k / experts of the tokens, and no expert gets more than all tokens.
  const auto k = static_cast<double>(model.experts_per_token);
  if (model.capacity_factor * k < static_cast<double>(model.experts)) return "";
  return fmt::format(
      "no expert of model.experts ({}) can get more than all tokens, which is {:g} times its even "
      "share at model.experts_per_token ({})",
      model.experts, static_cast<double>(model.experts) / k, model.experts_per_token);
}

std::string balance_loss(const Circumstances& here) {
  if (!here.config.model.mixture()) return mixture(here);
  return here.config.model.balance_coefficient == 0 ? "model.balance_coefficient is 0" : "";
}

std::string balance_biases(const Circumstances& here) {
  const bool has_none = here.config.model.balance_biases == BiasBalancing::none;
  return has_none ? "model.balance_biases is \"none\"" : "";
}

std::string names_rope_scaling(const Circumstances& here) {
  const bool has_none = here.config.model.rope_scaling == RopeScaling::none;
  return has_none ? "model.rope_scaling is \"none\"" : "";
}

std::string stretches_rope(const Circumstances& here) {
  std::string why = names_rope_scaling(here);
  if (!why.empty()) return why;
  return here.config.model.rope_factor == 1 ? "model.rope_factor is 1" : "";
}

std::string expert_parallel(const Circumstances& here) {
  return here.config.parallel.expert == 1 ? "parallel.expert is 1" : "";
}

std::string bounds_rows(const Circumstances& here) {
  const ParallelSection& parallel = here.config.parallel;
  if (parallel.expert == 1) return expert_parallel(here);
  const ModelConfig& model = here.config.model;
  const int64_t rank_experts = model.experts / parallel.expert;
  // At worst all tokens choose as many experts of one rank as they can. With k experts per token,
  // its rows over those of an even load are then expert ranks * min(k, rank_experts) / k.
  const double worst_load = static_cast<double>(parallel.expert) *
                            static_cast<double>(std::min(model.experts_per_token, rank_experts)) /
                            static_cast<double>(std::max<int64_t>(model.experts_per_token, 1));
  if (parallel.expert_rows_bound < worst_load) return "";
  return fmt::format("no rank can get more than {:g} times the rows of an even load", worst_load);
}

std::string counts_capacity(const Circumstances& here) {
  if (here.config.model.capacity_factor == 0) return "model.capacity_factor is 0";
  std::string why = drops_tokens(here);
  return why.empty() ? several_ranks(here) : why;
}

std::string sums_by_level(const Circumstances& here) {
  if (here.config.parallel.levels == std::vector<int64_t>{1})
    return "a node of one rank sums nothing within itself";
  return several_ranks(here);
}

std::string overlaps(const Circumstances& here) {
  if (!here.config.parallel.overlap) return "parallel.overlap is false";
  return several_ranks(here);
}

std::string sums_on_levels(const Circumstances& here) {
  std::string why = several_ranks(here);
  if (!why.empty() || here.mesh == nullptr) return why;
  const auto levels = [&](MeshView view) {
    return std::ranges::count_if(cut_axes(*here.mesh, all_axes(*here.mesh), view),
                                 [&](Axis axis) { return here.mesh->size(axis) > 1; });
  };
  const bool of_experts = here.config.model.mixture() && levels(MeshView::expert) > 1;
  if (of_experts || levels(MeshView::dense) > 1) return "";
  return "the ranks of a sum are on one level of the network";
}

std::string cuts_by(const ShardPlacement& placement, const Circumstances& here) {
  std::string why = several_ranks(here);
  if (!why.empty() || here.mesh == nullptr) return why;
  const Mesh& mesh = *here.mesh;
  const int axes = axes_of("a key of [shard]", placement, mesh);
  const bool cuts_experts =
      here.config.model.mixture() && cut_ranks(mesh, axes, MeshView::expert) > 1;
  if (cuts_experts || cut_ranks(mesh, axes, MeshView::dense) > 1) return "";
  if (placement.ranks == 1) return "a group of one rank has all of it";
  const std::string where = placement.ranks > 0 || placement.level == kAllRanks
                                ? fmt::format("the run ({})", mesh.text())
                                : fmt::format("a group of the level {}", placement.text());
  return fmt::format("no two ranks of {} hold the same weights", where);
}

std::string gathers_weights(const Circumstances& here) {
  if (here.config.shard.weights.is_none()) return "shard.weights is \"none\"";
  return cuts_by(here.config.shard.weights, here);
}

std::string has_second_copies(const Circumstances& here) {
  std::string why = gathers_weights(here);
  if (!why.empty()) return why;
  if (!here.config.shard.gather_again) return "shard.gather_again is false";
  if (here.config.shard.secondary.is_none()) return "shard.secondary is \"none\"";
  return cuts_by(here.config.shard.secondary, here);
}

std::string sends_integers(const Circumstances& here) {
  const ShardConfig& shard = here.config.shard;
  const std::array formats{shard.weights_wire, shard.secondary_wire, shard.gradients_wire};
  const auto is_quantised = [](WireFormat format) { return Wire{format}.is_quantised(); };
  if (std::ranges::none_of(formats, is_quantised)) return "nothing travels as integers";
  return several_ranks(here);
}

std::string shares_experts(const Circumstances& here) {
  std::string why = expert_parallel(here);
  if (!why.empty()) return why;
  return here.config.shard.optimizer.is_none() ? "shard.optimizer is \"none\"" : "";
}

std::string feeds_errors(const Circumstances& here) {
  const ShardConfig& shard = here.config.shard;
  if (!Wire{shard.gradients_wire}.is_quantised()) {
    return fmt::format("shard.gradients_wire is \"{}\"", word(shard.gradients_wire));
  }
  if (shard.gradients.is_none()) return "shard.gradients is \"none\"";
  return cuts_by(shard.gradients, here);
}

std::string several_chunks(const Circumstances& here) {
  if (model_chunks(here.config.parallel) > 1) return "";
  return "parallel.pipeline and parallel.virtual_stages are 1, so the model is one chunk";
}

std::string takes_groups(const Circumstances& here) {
  std::string why = several_chunks(here);
  if (!why.empty()) return why;
  const ParallelSection& parallel = here.config.parallel;
  if (!takes_consecutive_micro_batches(parallel)) {
    return parallel.schedule.empty()
               ? fmt::format("the schedule is \"{}\"", word(*schedule_kind(parallel)))
               : fmt::format("parallel.schedule is \"{}\"", parallel.schedule);
  }
  return parallel.virtual_stages == 1 ? "parallel.virtual_stages is 1" : "";
}

std::string several_sources(const Circumstances& here) {
  return here.config.data.sources.size() == 1 ? "there is one source" : "";
}

std::string token_files(const Circumstances& here) {
  const SourceConfig& source = here.config.data.sources[here.table];
  return source.format == SourceFormat::prepared ? "prepared data says it itself" : "";
}

std::string muon(const Circumstances& here) {
  const OptimizerName name = here.config.optimizer.name;
  return name == OptimizerName::muon ? "" : fmt::format("optimizer.name is \"{}\"", word(name));
}

std::string muon_over_tensor(const Circumstances& here) {
  std::string why = muon(here);
  if (!why.empty()) return why;
  return here.config.parallel.tensor == 1 ? "parallel.tensor is 1" : "";
}

std::string decays_weights(const Circumstances& here) {
  return here.config.optimizer.weight_decay == 0 ? "optimizer.weight_decay is 0" : "";
}

std::string clips(const Circumstances& here) {
  if (!here.config.optimizer.clip_after_warmup) return "";
  const bool never = std::ranges::all_of(here.phases, [](const RunPhase& phase) {
    return phase.config.optimizer.warmup_steps >= phase.config.train.steps;
  });
  return never ? "optimizer.clip_after_warmup is true, and the warm-up never ends" : "";
}

std::string clips_later(const Circumstances& here) {
  if (here.config.optimizer.clip_norm == 0) return "optimizer.clip_norm is 0";
  const bool no_warmup = std::ranges::all_of(
      here.phases, [](const RunPhase& phase) { return phase.config.optimizer.warmup_steps == 0; });
  return no_warmup ? "there is no warm-up" : "";
}

}  // namespace tessera::effects
