#include "config/effects.h"
#include "config/sections.h"

namespace tessera {

ConfigSection optimizer_section() {
  using namespace effects;
  // If a decay is closer to 1, fp32 keeps too few digits of 1 - decay.
  const NumberRule decay = single_between(0, 0.99999);
  // Gradients whose squares are 0 in fp32 are divided by epsilon alone.
  const NumberRule epsilon = single_between(1e-16, kMostWeight);
  return SectionWriter("optimizer", &RunConfig::optimizer, "how weights follow their gradients")
      .key("name", &OptimizerConfig::name, word_rule<OptimizerName>(), {always},
           "adamw, or muon for hidden matrices with adamw for all else")
      .key("learning_rate", &OptimizerConfig::learning_rate, single_above_zero(kMostWeight),
           {peak_of_a_course}, "the highest, reached at the end of the warm-up")
      .key("minimum_learning_rate", &OptimizerConfig::minimum_learning_rate,
           single_between(0, kMostWeight), {minimum_of_a_course},
           "the one that the schedule ends at")
      .key("schedule", &OptimizerConfig::schedule, word_rule<Schedule>(), {schedule_of_a_course},
           "of the learning rate after the warm-up")
      .key("warmup_steps", &OptimizerConfig::warmup_steps, whole(0, kMostSteps),
           {warmup_of_a_course}, "steps in which the learning rate rises from 0")
      .key("weight_decay", &OptimizerConfig::weight_decay, single_between(0, kMostWeight), {always},
           "decay of weights, as a multiple of the learning rate")
      .key("decay_rule", &OptimizerConfig::decay_rule, word_rule<DecayRule>(), {decays_weights},
           "which weights decay: matrices (no norms), all, or all matrices but the embedding")
      .key("beta1", &OptimizerConfig::beta1, decay, {always},
           "decay of the gradient's running mean")
      .key("beta2", &OptimizerConfig::beta2, decay, {always},
           "decay of the squared gradient's running mean")
      .key("epsilon", &OptimizerConfig::epsilon, epsilon, {always},
           "what is added to the root of the mean squared gradient")
      .key("clip_norm", &OptimizerConfig::clip_norm, single_between(0, kMostNumber), {clips, 0.0},
           "the gradient's norm at most; 0: not clipped")
      .key("clip_after_warmup", &OptimizerConfig::clip_after_warmup, FlagRule{},
           {clips_later, false}, "clip only once the warm-up is over")
      .key("muon_momentum", &OptimizerConfig::muon_momentum, decay, {muon},
           "decay of Muon's momentum")
      .key("muon_steps", &OptimizerConfig::muon_steps, whole(1, 100), {muon},
           "steps of Newton-Schulz, which orthogonalises Muon's updates")
      .key("muon_split", &OptimizerConfig::muon_split, word_rule<MuonSplit>(), {muon_over_tensor},
           "matrices that tensor parallelism splits: gather them whole, or take each rank's block "
           "for a matrix, which is another algorithm")
      .section();
}

}  // namespace tessera
