#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "comm/mesh.h"
#include "config/run_config.h"
#include "model/chunk.h"
#include "pipeline/generate.h"
#include "pipeline/schedule.h"

// The pipeline that [parallel] describes. The configuration has passed validate(), and that of a
// phase (RunPhase::config) mesh_of() too, which check what these functions need.

namespace tessera {

/// Returns the number of chunks into which the model is cut: parallel.virtual_stages for each of
/// the parallel.pipeline stages.
int64_t model_chunks(const ParallelSection& parallel);

/// Returns the kind of the schedule, or none if parallel.schedule is the path of a file. If the key
/// is empty, the kind is 1F1B for one chunk a stage and interleaved 1F1B for several. A model of
/// one chunk has 1F1B, whatever the key says: forward and backward of each micro-batch in turn.
std::optional<ScheduleKind> schedule_kind(const ParallelSection& parallel);

/// Returns whether parallel.consecutive_micro_batches applies to the kind of the schedule.
bool takes_consecutive_micro_batches(const ParallelSection& parallel);

/// Returns the value of parallel.virtual_stages if the key is left out: 2 for schedules that place
/// two chunks on each of several stages, otherwise 1.
int64_t default_virtual_stages(const ParallelSection& parallel);

/// Returns what the schedule of a phase is computed for. The micro-batches are those of one step of
/// one data-parallel rank.
PipelineShape pipeline_shape(const RunConfig& phase, const Mesh& mesh);

/// Returns the schedule of a phase, which has one list for each stage. Throws Error, with the key,
/// the path and the numbers, if it is in a file that cannot be read, has a list that cannot run, or
/// is for other numbers of stages, chunks or micro-batches than the phase has.
PipelineSchedule pipeline_schedule(const RunConfig& phase, const Mesh& mesh);

/// Returns numbers of layers for chunks that differ by at most one. The chunks before the last one
/// have more, because the last one has the head, and a stage holds the activations of more
/// micro-batches the earlier it is.
std::vector<int64_t> even_layers(int64_t layers, int64_t chunks);

/// Returns the part of the model that each chunk has, as parallel.stage_layers says: even_layers()
/// if the key is empty. Throws InternalError if it is "balanced", for which with_stage_layers()
/// puts the numbers of layers.
std::vector<ChunkRange> chunk_ranges(const RunConfig& config);

/// Returns whether a pipeline stage recomputes, by the value of train.recompute_stages.
bool recomputes(std::span<const int64_t> stages, int stage);

/// Returns the blocks that a pipeline stage recomputes.
std::vector<RecomputedBlock> recomputed_on(const TrainSection& train, int stage);

/// Throws Error if the model is cut into stages or chunks, which the command does not run.
void require_one_chunk(const ParallelSection& parallel, std::string_view command);

}  // namespace tessera
