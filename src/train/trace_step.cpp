#include "train/trace_step.h"

#include <algorithm>
#include <array>
#include <utility>

#include "hardware/processor.h"

namespace tessera {
namespace {

TraceOrigin origin_of(const TracedRun& run, const Runtime& runtime, int rank) {
  const Processor processor = this_processor(runtime.threads());
  const Accelerator* const accelerator = runtime.accelerator();
  return {.processor = processor.name,
          .features = processor.features,
          .threads = runtime.threads(),
          .rank = rank,
          .precision = run.config.train.precision,
          .gemm_peak = run.gemm_peak,
          .tokens = run.tokens,
          .device = run.config.run.device,
          .accelerator = accelerator != nullptr ? accelerator->name() : ""};
}

/// Returns a rank's coordinates on the axes that have several ranks, but for the pipeline's. Those
/// of the expert view are left out if experts are not divided.
std::map<std::string, int> coordinates_of(const Mesh& mesh, int rank) {
  std::map<std::string, int> coordinates;
  const auto add = [&](MeshView view) {
    for (const Axis axis : mesh.axes_of(view)) {
      if (mesh.size(axis) > 1) coordinates[mesh.name(axis)] = mesh.coordinate(rank, axis);
    }
  };
  add(MeshView::dense);
  if (mesh.size(mesh.expert()) > 1) add(MeshView::expert);
  return coordinates;
}

}  // namespace

RankTrace rank_trace(StepTrace step, std::vector<TimedEntry> list, const TracedRun& run,
                     const StepPrograms& programs, int set, const Runtime& runtime) {
  const auto [mesh, rank] = programs.mesh_rank();
  const std::array pipeline{mesh.pipeline()};
  step.origin = origin_of(run, runtime, rank);
  const int stage = mesh.stage(rank);
  return {.step = std::move(step),
          .list = std::move(list),
          .stage = stage,
          .chunks = programs.sets[static_cast<size_t>(set)].placement.chunks_of(stage),
          .pipeline = std::ranges::min(mesh.group(rank, pipeline)),
          .coordinates = coordinates_of(mesh, rank)};
}

}  // namespace tessera
