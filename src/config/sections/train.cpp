#include "config/sections.h"

namespace tessera {

ConfigSection train_section() {
  return SectionWriter("train", &RunConfig::train, "how long, in which portions and how precisely")
      .key("steps", &TrainSection::steps, at_least(1), "optimizer steps of the whole schedule")
      .key("stop_after", &TrainSection::stop_after, at_least(0),
           "save and exit after this step, the schedule still being that of `steps`; 0: at the end")
      .key("micro_batch", &TrainSection::micro_batch, whole(1, 1 << 24),
           "sequences that run through the model at once, on each data-parallel rank")
      .key(
          "global_batch", &TrainSection::global_batch, whole(1, 1 << 30),
          "sequences of an optimizer step; a multiple of micro_batch times the data-parallel ranks")
      .key("precision", &TrainSection::precision, word_rule<Precision>(),
           "type of weights and activations in the model's computations")
      .key("tf32", &TrainSection::tf32, FlagRule{},
           "on the device cuda, matrix products of fp32, the router's too, round their operands to "
           "TF32; those of experts do not")
      .key("recompute", &TrainSection::recompute, word_list_rule<Recomputed>(),
           "what is computed again in the backward pass instead of kept, to save memory")
      .key("seed", &TrainSection::seed, at_least(0), "of initial weights")
      .key("evaluate_every", &TrainSection::evaluate_every, at_least(0),
           "steps between evaluations on held-out data; 0: none")
      .key("evaluate_batches", &TrainSection::evaluate_batches, at_least(1),
           "micro-batches of one evaluation")
      .section();
}

}  // namespace tessera
