#pragma once

#include "train/trainer.h"

namespace tessera::testing {

inline const TrainOptions kQuiet{.progress = false};
inline const TrainOptions kResume{.resume = true, .progress = false};

}  // namespace tessera::testing
