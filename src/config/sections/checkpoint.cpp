#include "config/sections.h"

namespace tessera {

ConfigSection checkpoint_section() {
  return SectionWriter("checkpoint", &RunConfig::checkpoint, "when the run is saved")
      .key("every", &CheckpointSection::every, at_least(0),
           "steps between checkpoints; 0: only one at the end")
      .key("keep", &CheckpointSection::keep, at_least(1), "how many of the newest are kept")
      .key("keep_every", &CheckpointSection::keep_every, at_least(0),
           "checkpoints of multiples of this step are kept for good; 0: none")
      .key("initial", &CheckpointSection::initial, TextRule{.may_be_empty = true},
           "a checkpoint, such as an imported one, whose weights a new run starts with and whose "
           "model fills the keys that [model] leaves out; \"\": weights are drawn")
      .section();
}

}  // namespace tessera
