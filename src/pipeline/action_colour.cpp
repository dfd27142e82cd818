#include "pipeline/action_colour.h"

#include <algorithm>
#include <array>

#include "plot/colour.h"

namespace tessera {
namespace {

/// The colour of a rank's first chunk, by ActionKind, and that of its last one. They are distinct
/// with any kind of colour vision (Okabe and Ito), and numbers are legible on all of them.
constexpr std::array<Colour, 4> kLight{
    {{173, 211, 240}, {150, 220, 195}, {250, 222, 150}, {228, 192, 216}}};
constexpr std::array<Colour, 4> kDark{
    {{86, 160, 220}, {60, 175, 130}, {230, 165, 40}, {204, 130, 175}}};

/// Their names in the trace event format: blue, green, yellow to orange, and pink.
constexpr std::array<std::string_view, 4> kNamedLight{
    "thread_state_runnable", "thread_state_running", "cq_build_running", "cq_build_failed"};
constexpr std::array<std::string_view, 4> kNamedDark{"rail_response", "rail_load", "rail_idle",
                                                     "thread_state_uninterruptible"};

}  // namespace

double shade_of(int chunk, std::span<const int> chunks) {
  if (chunks.size() < 2) return 0;
  const auto index = std::ranges::find(chunks, chunk) - chunks.begin();
  return static_cast<double>(index) / static_cast<double>(chunks.size() - 1);
}

std::string action_colour(ActionKind kind, double shade) {
  return hex_text(
      mixed(kLight[static_cast<size_t>(kind)], kDark[static_cast<size_t>(kind)], shade));
}

std::string_view named_action_colour(ActionKind kind, double shade) {
  return (shade < 0.5 ? kNamedLight : kNamedDark)[static_cast<size_t>(kind)];
}

}  // namespace tessera
