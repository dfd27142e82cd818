#include "config/sections.h"

namespace tessera {

std::vector<ConfigSection> all_sections() {
  return {run_section(),      model_section(), data_section(),      train_section(),
          parallel_section(), shard_section(), optimizer_section(), checkpoint_section()};
}

}  // namespace tessera
