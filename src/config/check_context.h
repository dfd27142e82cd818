#pragma once

#include <string_view>

#include "base/contradictions.h"
#include "comm/mesh.h"
#include "config/run_config.h"

namespace tessera {

/// The number of positions of a sequence, with the key or option by which the user gave it.
struct ContextLength {
  std::string_view name;
  int64_t positions = 0;
  std::string_view micro_batch = "train.micro_batch";  ///< the key of the micro-batch size
};

// The checks of a context length. Those named check_... add contradictions to `found`.

/// Checks that a context does not exceed model.max_context, that 32 bits can number the rows of a
/// micro-batch (a row is a token, or one of a token's expert choices), and that 64 bits can count
/// the bytes of its activations.
void check_context(const RunConfig& config, const ContextLength& context, Contradictions& found);

/// Checks that the positions divide over the ranks of a mesh. They are split over the context axis
/// into two chunks for each rank: rank i of n gets the chunks i and 2n - 1 - i. The positions of a
/// rank are split again over the tensor axis.
void check_context_on(const Mesh& mesh, const ContextLength& context, Contradictions& found);

/// For a mixture, checks that 32 bits can number the expert choices of all ranks' micro-batches: a
/// rank's received rows, and the experts' token counts summed over the ranks, are 32-bit.
void check_choices(const RunConfig& config, int64_t data_ranks, const ContextLength& context,
                   Contradictions& found);

/// Throws Error if a context that was given in place of the configuration's own fails one of these
/// checks, or is out of the range of the key data.context.
void require_context(const RunConfig& config, const Mesh& mesh, const ContextLength& context);

}  // namespace tessera
