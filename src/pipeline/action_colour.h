#pragma once

#include <span>
#include <string>
#include <string_view>

#include "pipeline/schedule.h"

namespace tessera {

// The colours of actions, the same in drawings and in traces. The kind of an action gives the
// colour, and its chunk the shade: the later among the chunks of its rank, the darker.

/// Returns the shade of a chunk: from 0 for the first one of a rank to 1 for the last one. `chunks`
/// are those of its rank, in the model's order.
double shade_of(int chunk, std::span<const int> chunks);
inline double shade_of(int chunk, const ChunkPlacement& placement) {
  return shade_of(chunk, placement.chunks_of(placement.rank(chunk)));
}

/// Returns the colour of an action in drawings, as "#add3f0".
std::string action_colour(ActionKind kind, double shade);

/// Returns the nearest colour of those that the trace event format has names for. Chrome's viewer
/// knows them.
std::string_view named_action_colour(ActionKind kind, double shade);

/// The colour of waiting in traces, as in drawings: a light grey.
inline constexpr std::string_view kNamedIdleColour = "grey";

}  // namespace tessera
