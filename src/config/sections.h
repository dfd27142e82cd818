#pragma once

#include <vector>

#include "config/key.h"

namespace tessera {

/// Each section declares its keys in its own file under sections/.
Section run_section();
Section model_section();
Section data_section();
Section train_section();
Section optimizer_section();
Section checkpoint_section();

/// Returns all sections, in the order in which they are printed.
std::vector<Section> all_sections();

}  // namespace tessera
