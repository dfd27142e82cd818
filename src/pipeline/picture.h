#pragma once

#include <string>

#include "pipeline/clock.h"
#include "pipeline/schedule.h"

namespace tessera {

/// Returns the picture of a schedule as an SVG document, like those of the papers. Each rank has a
/// row, the first one at the top, and time runs to the right. A box is an action, with the number
/// of its micro-batch where there is room. Its colour gives the kind, and its shade the chunk: the
/// later in the model, the darker. Beside the rows stand the peak of each rank in flight and the
/// share of the makespan in which it idles; above them, the name and the bubble.
///
/// `figures` are what measure() returns for the schedule. Equal figures give equal bytes.
std::string draw(const PipelineSchedule& schedule, const ScheduleFigures& figures);

}  // namespace tessera
