#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/words.h"
#include "pipeline/generate.h"
#include "pipeline/place_messages.h"
#include "verify/layout_run.h"

namespace tessera {

/// How a trial's stages are cut, and which schedule they follow.
struct PipelineCut {
  ScheduleKind kind = ScheduleKind::one_forward_one_backward;
  int stages = 2;
  int chunks_per_stage = 1;
  int micro_batches = 2;
  std::optional<int> consecutive = {};
  /// By chunk of the model; as even as possible if empty.
  std::vector<int64_t> layers = {};

  int chunks() const { return stages * chunks_per_stage; }
  std::string text() const {
    return fmt::format("{}, {} stages of {} chunks, {} micro-batches", word(kind), stages,
                       chunks_per_stage, micro_batches);
  }
};

inline TrialPipeline pipeline_of(const PipelineCut& cut, const ModelConfig& model) {
  TrialPipeline pipeline{
      .ranges = {},
      .schedule = in_halves(generate(cut.kind, {.ranks = cut.stages,
                                                .chunks = cut.chunks(),
                                                .micro_batches = cut.micro_batches,
                                                .consecutive_micro_batches = cut.consecutive}))};
  int64_t first = 0;
  for (int chunk = 0; chunk < cut.chunks(); ++chunk) {
    const int64_t end = cut.layers.empty() ? model.layers * (chunk + 1) / cut.chunks()
                                           : first + cut.layers[static_cast<size_t>(chunk)];
    pipeline.ranges.push_back(
        {.layers = {first, end}, .embedding = chunk == 0, .head = chunk + 1 == cut.chunks()});
    first = end;
  }
  return pipeline;
}

/// A trial of a pipeline alone, or over other axes as well.
inline LayoutTrial trial_of(const ModelConfig& model, const PipelineCut& cut,
                            MeshSizes sizes = {}) {
  sizes.pipeline = cut.stages;
  LayoutTrial trial{
      .model = model, .size = {.sequences = 4, .context = 16, .document_mask = true}, .mesh = {}};
  trial.mesh = Mesh(sizes);
  trial.pipeline = pipeline_of(cut, model);
  trial.micro_batches = cut.micro_batches;
  return trial;
}

}  // namespace tessera
