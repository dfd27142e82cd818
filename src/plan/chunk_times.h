#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "pipeline/clock.h"
#include "program/program.h"

namespace tessera {

/// Returns what a number of each node adds up to over the passes of a chunk's program.
ChunkTimes chunk_times(const Program& program,
                       const std::function<double(const Node& node)>& of_node);

/// Returns the FLOPs of a node, those included that repeat results.
double node_flops(const Program& program, const Node& node);
/// Returns the FLOPs of the passes of a chunk's program.
ChunkTimes chunk_flops(const Program& program);

/// Returns, by node of a chunk's program, its part of the time of its pass: in proportion to FLOPs,
/// or in equal parts if the pass has none. Only nodes of the compute lane have a part. A pass
/// without such nodes is left out.
std::vector<double> node_times(const Program& program, const ChunkTimes& times);

/// Reads the seconds of the passes of `chunks` chunks: a JSON object with "forward",
/// "input_gradients" and "weight_gradients". Each is a number for all chunks, or an array with one
/// number for each. Throws Error, with the path and the member, if the file cannot be read or has
/// another form, or for seconds below 0 or above an hour.
std::vector<ChunkTimes> read_chunk_times(const fs::path& path, int chunks);
/// Reads them from a text. `origin` is the file's name in errors.
std::vector<ChunkTimes> parse_chunk_times(std::string_view text, const std::string& origin,
                                          int chunks);

}  // namespace tessera
