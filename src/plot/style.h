#pragma once

#include <cstddef>
#include <string>

#include "plot/curve.h"

namespace tessera {

/// The sizes common to every picture, in pixels.
inline constexpr double kMargin = 16, kTitleHeight = 30, kNoteHeight = 20;

/// The number of runs that one picture can tell apart.
inline constexpr size_t kStyles = 42;

/// Returns the colour of a run. It is one of seven that are distinct with any kind of colour vision
/// (M. Okabe and K. Ito, "Color Universal Design").
std::string colour(size_t run);

/// Returns the attribute that dashes a run's line; empty for the first. There are six patterns: a
/// few runs are distinct in grey, and no two of kStyles look the same.
std::string dashes(size_t run);

/// Returns a run's marker at that point. It is one of five shapes.
std::string marker(size_t run, Point at);

}  // namespace tessera
