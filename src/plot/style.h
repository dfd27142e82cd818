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

/// Returns the attribute that dashes a run's line; empty for the first run. There are six patterns,
/// so that a few runs are distinct in grey too. No two of kStyles runs have both the colour and the
/// pattern in common.
std::string dashes(size_t run);

/// Returns a run's marker, one of five shapes, at a point.
std::string marker(size_t run, Point at);

}  // namespace tessera
