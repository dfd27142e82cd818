#pragma once

#include "base/contradictions.h"
#include "comm/mesh.h"
#include "config/phases.h"
#include "config/run_config.h"

namespace tessera {

// The checks of a pipeline. Both add contradictions to `found`. A model of one chunk has none.

/// Checks what does not depend on the mesh: that the schedule exists for the stages and chunks,
/// that the layers suit the chunks, and that the model can be cut into chunks at all.
void check_pipeline(const RunConfig& config, Contradictions& found);

/// Checks that the schedule exists for the micro-batches of a phase on a mesh. If the schedule is
/// in a file, reads it and checks it.
void check_schedule(const RunPhase& phase, const Mesh& mesh, Contradictions& found);

}  // namespace tessera
