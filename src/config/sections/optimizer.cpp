#include "config/sections.h"

namespace tessera {

ConfigSection optimizer_section() {
  const NumberRule below_one{.minimum = 0, .maximum = 1, .excludes_maximum = true};
  return SectionWriter("optimizer", &RunConfig::optimizer, "how weights follow their gradients")
      .key("name", &OptimizerConfig::name, word_rule<OptimizerName>(),
           "adamw, or muon for hidden matrices with adamw for all else")
      .key("learning_rate", &OptimizerConfig::learning_rate, number_above(0),
           "the highest, reached at the end of the warm-up")
      .key("minimum_learning_rate", &OptimizerConfig::minimum_learning_rate, number_at_least(0),
           "the one that the schedule ends at")
      .key("schedule", &OptimizerConfig::schedule, word_rule<Schedule>(),
           "of the learning rate after the warm-up")
      .key("warmup_steps", &OptimizerConfig::warmup_steps, at_least(0),
           "steps in which the learning rate rises from 0")
      .key("weight_decay", &OptimizerConfig::weight_decay, number_at_least(0),
           "decay of weights, as a multiple of the learning rate")
      .key("decay_rule", &OptimizerConfig::decay_rule, word_rule<DecayRule>(),
           "which weights decay: matrices (no norms), all, or all matrices but the embedding")
      .key("beta1", &OptimizerConfig::beta1, below_one, "decay of the gradient's running mean")
      .key("beta2", &OptimizerConfig::beta2, below_one,
           "decay of the squared gradient's running mean")
      .key("epsilon", &OptimizerConfig::epsilon, number_above(0),
           "what is added to the root of the mean squared gradient")
      .key("clip_norm", &OptimizerConfig::clip_norm, number_at_least(0),
           "the gradient's norm at most; 0: not clipped")
      .key("clip_after_warmup", &OptimizerConfig::clip_after_warmup, FlagRule{},
           "clip only once the warm-up is over")
      .key("muon_momentum", &OptimizerConfig::muon_momentum, below_one, "decay of Muon's momentum")
      .key("muon_steps", &OptimizerConfig::muon_steps, whole(1, 100),
           "steps of Newton-Schulz, which orthogonalises Muon's updates")
      .key("muon_split", &OptimizerConfig::muon_split, word_rule<MuonSplit>(),
           "matrices that tensor parallelism splits: gather them whole, or take each rank's block "
           "for a matrix, which is another algorithm")
      .section();
}

}  // namespace tessera
