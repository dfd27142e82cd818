#include "config/effects.h"
#include "config/sections.h"

namespace tessera {

ConfigSection optimizer_section() {
  using namespace effects;
  // If a decay is closer to 1, fp32 keeps too few digits of 1 - decay.
  const NumberRule decay = f32_between(0, 0.99999);
  // Gradients whose squares are 0 in fp32 are divided by epsilon alone.
  const NumberRule epsilon = f32_between(1e-16, kMaxWeight);
  return SectionWriter("optimizer", &RunConfig::optimizer, "how weights follow their gradients")
      .key("name", &OptimizerConfig::name, word_rule<OptimizerName>(), {always},
           "adamw, or muon for hidden matrices with adamw for all else")
      .key("learning_rate", &OptimizerConfig::learning_rate, f32_above_zero(kMaxWeight),
           {peak_of_a_course}, "the highest learning rate, reached at the end of the warm-up")
      .key("minimum_learning_rate", &OptimizerConfig::minimum_learning_rate,
           f32_between(0, kMaxWeight), {minimum_of_a_course},
           "the learning rate at which the schedule ends")
      .key("schedule", &OptimizerConfig::schedule, word_rule<Schedule>(), {schedule_of_a_course},
           "how the learning rate changes after the warm-up")
      .key("warmup_steps", &OptimizerConfig::warmup_steps, whole(0, kMaxSteps),
           {warmup_of_a_course}, "steps in which the learning rate rises from 0")
      .key("weight_decay", &OptimizerConfig::weight_decay, f32_between(0, kMaxWeight), {always},
           "decay of weights, as a multiple of the learning rate")
      .key("decay_rule", &OptimizerConfig::decay_rule, word_rule<DecayRule>(), {decays_weights},
           "which weights decay: matrices (no norms), all, or all matrices but the embedding")
      .key("beta1", &OptimizerConfig::beta1, decay, {always},
           "decay of the gradient's running mean")
      .key("beta2", &OptimizerConfig::beta2, decay, {always},
           "decay of the squared gradient's running mean")
      .key("epsilon", &OptimizerConfig::epsilon, epsilon, {always},
           "what is added to the root of the mean squared gradient")
      .key("clip_norm", &OptimizerConfig::clip_norm, f32_between(0, kMaxNumber), {clips, 0.0},
           "the largest norm of a clipped gradient; 0: not clipped")
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
