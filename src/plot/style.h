#pragma once

#include <cstddef>
#include <string>

#include "plot/curve.h"

namespace tessera {

/// Of every picture, in pixels.
inline constexpr double kMargin = 16, kTitleHeight = 30, kNoteHeight = 20;

/// How many runs one picture can tell apart.
inline constexpr size_t kStyles = 42;

/// The colour of a run: one of seven that are told apart with any kind of colour vision (M. Okabe
/// and K. Ito, "Color Universal Design").
std::string colour(size_t run);

/// The attribute that dashes a run's line: one of six patterns, so that few runs are told apart in
/// grey and no two of kStyles look the same. Empty for the first.
std::string dashes(size_t run);

/// A run's marker at that point: one of five shapes.
std::string marker(size_t run, Point at);

}  // namespace tessera
