#include "config/effects.h"
#include "config/sections.h"

namespace tessera {

ConfigSection checkpoint_section() {
  using namespace effects;
  return SectionWriter("checkpoint", &RunConfig::checkpoint, "when the run is saved")
      .key("every", &CheckpointSection::every, whole(0, kMaxSteps), {always},
           "steps between checkpoints; 0: only one at the end")
      .key("keep", &CheckpointSection::keep, whole(1, kMaxSteps), {always},
           "the number of newest checkpoints that are kept")
      .key("keep_every", &CheckpointSection::keep_every, whole(0, kMaxSteps),
           {keeps_a_checkpoint, int64_t{0}},
           "checkpoints of multiples of this step are kept for good; 0: none")
      .key("initial", &CheckpointSection::initial, TextRule{.may_be_empty = true}, {always},
           "a checkpoint, such as an imported one, whose weights a new run starts with and whose "
           "model fills the keys that [model] leaves out; \"\": weights are drawn")
      .section();
}

}  // namespace tessera
