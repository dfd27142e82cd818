#pragma once

#include <cstdint>
#include <vector>

#include "model/model.h"
#include "pipeline/stage_list.h"

namespace tessera {

/// The evaluation of a model on one rank: the forward passes of the chunks of its stage.
struct EvaluationPasses {
  /// Says which pipeline stage has which chunk of the model; one stage with one chunk by default.
  ChunkPlacement placement = loop_placement(1, 1);
  std::vector<EvaluationProgram> chunks;  ///< of this rank's stage, in the model's order
  int64_t vocabulary_size = 0;            ///< of the model

  MeshRank mesh_rank() const {
    const Program& program = chunks.front().program;
    return {program.mesh(), program.rank()};
  }
  /// Returns the chunks' programs.
  std::vector<const Program*> programs() const;
  /// Returns what this rank does with a batch. `first_program` is the number of the first chunk's
  /// program in the executor's list; the others follow it.
  StageList list(int first_program = 0) const;
};

/// Returns the passes of a program that is the whole model.
EvaluationPasses evaluation_passes(EvaluationProgram whole_model);

}  // namespace tessera
