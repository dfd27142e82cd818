#include "plot/style.h"

#include <array>

#include <fmt/format.h>

#include "plot/svg.h"

namespace tessera {
namespace {

constexpr std::array<const char*, 7> kRunColours{"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                                 "#E69F00", "#56B4E9", "#000000"};
constexpr std::array<const char*, 6> kDashes{"", "7 3", "2 2", "9 3 2 3", "14 4", "9 3 2 3 2 3"};
/// Shapes around the origin: circle, square, diamond, and triangles up and down. Their areas are
/// about equal.
constexpr std::array<const char*, 5> kMarkers{
    "M-3.6 0A3.6 3.6 0 1 1 3.6 0A3.6 3.6 0 1 1 -3.6 0Z", "M-3.2 -3.2H3.2V3.2H-3.2Z",
    "M0 -4.6L4.6 0L0 4.6L-4.6 0Z", "M0 -4.6L4.4 3.2H-4.4Z", "M0 4.6L4.4 -3.2H-4.4Z"};
static_assert(kStyles == kRunColours.size() * kDashes.size(), "7 and 6 have no common factor");

}  // namespace

std::string colour(size_t run) { return kRunColours[run % kRunColours.size()]; }

std::string dashes(size_t run) {
  const char* pattern = kDashes[run % kDashes.size()];
  return *pattern == '\0' ? "" : fmt::format(" stroke-dasharray=\"{}\"", pattern);
}

std::string marker(size_t run, Point at) {
  return fmt::format(
      "<path transform=\"translate({} {})\" d=\"{}\" fill=\"{}\" stroke=\"#fff\"/>\n", pixels(at.x),
      pixels(at.y), kMarkers[run % kMarkers.size()], colour(run));
}

}  // namespace tessera
