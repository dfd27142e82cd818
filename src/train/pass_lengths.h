#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/words.h"
#include "comm/mesh.h"
#include "comm/rank_control.h"
#include "pipeline/clock.h"
#include "pipeline/schedule.h"

namespace tessera {

/// The rule for the times of passes in a timed run.
enum class PassRule {
  equal,     ///< each pass of a stage takes the same time, shared out evenly over its chunks
  flops,     ///< in proportion to FLOPs
  hardware,  ///< calculated for each node from the rates of run.hardware (NodeSeconds)
  file       ///< those of a file (see read_chunk_times())
};
template <>
inline constexpr std::array<std::string_view, 4> kWordsOf<PassRule>{"equal", "flops", "hardware",
                                                                    "file"};

/// Says how long passes take.
struct PassLengths {
  PassRule rule = PassRule::equal;
  /// For `equal` and `flops`: the mean seconds of a stage's forward, input gradients and weight
  /// gradients of one micro-batch.
  double mean_seconds = 0.01;
  fs::path path;                 ///< of the file
  bool computes_update = false;  ///< the update computes, on values without meaning
};

/// Returns the text of the file; empty if the rule names none, or there is none.
std::string text_of(const PassLengths& lengths);

/// Returns the times of all chunks. `known` are the FLOPs of their passes, or their seconds if the
/// rule is `hardware`. Throws Error if the file
/// cannot be read or gives no pass a time.
std::vector<ChunkTimes> lengths_of(const PassLengths& lengths, const std::vector<ChunkTimes>& known,
                                   int stages);

/// Returns the numbers of all chunks of the model, of which each rank gives those of its stage. All
/// ranks call it.
std::vector<ChunkTimes> gather_chunks(const std::vector<ChunkTimes>& own, const Mesh& mesh,
                                      const ChunkPlacement& placement, const RankControl& control);

}  // namespace tessera
