#include "config/sections.h"

namespace tessera {

Section checkpoint_section() {
  return SectionWriter("checkpoint", &RunConfig::checkpoint, "when the run is saved")
      .key("every", &CheckpointSection::every, at_least(0),
           "steps between checkpoints; 0: only one at the end")
      .key("keep", &CheckpointSection::keep, at_least(1), "how many of the newest are kept")
      .key("keep_every", &CheckpointSection::keep_every, at_least(0),
           "checkpoints of multiples of this step are kept for good; 0: none")
      .section();
}

}  // namespace tessera
