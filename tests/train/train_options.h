#pragma once

#include "train/trainer.h"

namespace tessera::testing {

inline constexpr TrainOptions kQuiet{.progress = false};
inline constexpr TrainOptions kResume{.resume = true, .progress = false};

}  // namespace tessera::testing
