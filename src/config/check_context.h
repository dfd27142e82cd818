#pragma once

#include <string_view>

#include "base/contradictions.h"
#include "comm/mesh.h"
#include "config/run_config.h"

namespace tessera {

/// The number of positions of a sequence, with the name under which the user gave it.
struct ContextLength {
  std::string_view name;
  int64_t positions = 0;
  std::string_view micro_batch = "train.micro_batch";  ///< the key of the micro-batch size
};

/// Returns the context length of a configuration.
inline ContextLength context_of(const RunConfig& config) {
  return {"data.context", config.data.context};
}

/// Adds a contradiction if a context exceeds the one that the model declares, which it was trained
/// on, or if a micro-batch has more rows than 32 bits can number.
void check_context(const RunConfig& config, const ContextLength& context, Contradictions& found);

/// Adds a contradiction if the positions do not divide over the ranks of a mesh. They are split in
/// zigzag over the context axis, two chunks for each rank, and a rank's positions are split again
/// over the tensor axis.
void check_context_on(const Mesh& mesh, const ContextLength& context, Contradictions& found);

/// Adds a contradiction if 32 bits cannot number the expert choices of all ranks' tokens. The rows
/// that a rank gets and the counts of experts, which are summed over the ranks, are 32-bit. `data`
/// is the number of data-parallel ranks.
void check_choices(const RunConfig& config, int64_t data, const ContextLength& context,
                   Contradictions& found);

/// Throws Error if a context that differs from the configuration's own fails one of these checks,
/// or is out of the range of the key data.context.
void require_context(const RunConfig& config, const Mesh& mesh, const ContextLength& context);

}  // namespace tessera
