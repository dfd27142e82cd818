#pragma once

#include <string_view>

#include "base/contradictions.h"
#include "comm/mesh.h"
#include "config/run_config.h"

namespace tessera {

/// The positions of a sequence, by the name under which the user gave them.
struct ContextLength {
  std::string_view name;
  int64_t positions = 0;
  std::string_view micro_batch = "train.micro_batch";  ///< the key beside it
};

/// That of a configuration.
inline ContextLength context_of(const RunConfig& config) {
  return {"data.context", config.data.context};
}

/// Requires a context to be within the one that the model declares, which it was trained on, and
/// the rows of a micro-batch to have 32-bit numbers.
void check_context(const RunConfig& config, const ContextLength& context, Contradictions& found);

/// Requires positions to divide over the ranks of a mesh. They are split in zigzag over the context
/// axis, each rank having two chunks, and what a rank has is split again over the tensor axis.
void check_context_on(const Mesh& mesh, const ContextLength& context, Contradictions& found);

/// Requires the choices of all ranks' tokens to have 32-bit numbers: so do the rows that a rank
/// gets, and the counts of experts, which are summed over the ranks. `data` is the number of
/// data-parallel ranks.
void check_choices(const RunConfig& config, int64_t data, const ContextLength& context,
                   Contradictions& found);

/// Throws Error if a context that is not the configuration's own breaks one of the above, or is no
/// value of the key data.context.
void require_context(const RunConfig& config, const Mesh& mesh, const ContextLength& context);

}  // namespace tessera
