#pragma once

#include <vector>

#include "config/key.h"

namespace tessera {

// Each section is declared in the file of its name under sections/.
ConfigSection run_section();
ConfigSection model_section();
ConfigSection data_section();
ConfigSection train_section();
ConfigSection parallel_section();
ConfigSection shard_section();
ConfigSection optimizer_section();
ConfigSection checkpoint_section();

/// Returns all sections, in the order in which they are printed.
inline std::vector<ConfigSection> all_sections() {
  return {run_section(),      model_section(), data_section(),      train_section(),
          parallel_section(), shard_section(), optimizer_section(), checkpoint_section()};
}

}  // namespace tessera
