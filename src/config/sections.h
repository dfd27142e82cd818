#pragma once

#include <vector>

#include "config/key.h"

namespace tessera {

/// Returns one section. Each declares its keys in its own file under sections/.
ConfigSection run_section();
ConfigSection model_section();
ConfigSection data_section();
ConfigSection train_section();
ConfigSection parallel_section();
ConfigSection shard_section();
ConfigSection optimizer_section();
ConfigSection checkpoint_section();

/// Returns all sections, in the order in which they are printed.
std::vector<ConfigSection> all_sections();

}  // namespace tessera
