#include "train/pass_lengths.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/error.h"
#include "plan/chunk_times.h"

namespace tessera {
namespace {

/// Reads the times of a file, of which at least one must be above 0.
std::vector<ChunkTimes> lengths_of_file(const fs::path& path, int chunks) {
  std::vector<ChunkTimes> times = read_chunk_times(path, chunks);
  const auto takes_time = [](const ChunkTimes& chunk) {
    return chunk.of(ActionKind::forward) + chunk.of(ActionKind::backward) > 0;
  };
  if (std::ranges::any_of(times, takes_time)) return times;
  throw Error("{}: all passes take 0 seconds; give at least one of them a time", path.string());
}

}  // namespace

std::string text_of(const PassLengths& lengths) {
  return lengths.rule == PassRule::file && fs::exists(lengths.path) ? read_file(lengths.path) : "";
}

std::vector<ChunkTimes> lengths_of(const PassLengths& lengths, const std::vector<ChunkTimes>& known,
                                   int stages) {
  const int chunks = static_cast<int>(known.size());
  if (lengths.rule == PassRule::file) return lengths_of_file(lengths.path, chunks);
  if (lengths.rule == PassRule::hardware) return known;
  std::vector<ChunkTimes> times(known.size());  // in proportion
  if (lengths.rule == PassRule::flops) times = known;
  double sum = 0;
  for (const ChunkTimes& chunk : times) {
    sum += chunk.forward + chunk.input_gradients + chunk.weight_gradients;
  }
  const double scale = lengths.mean_seconds * 3 * stages / sum;
  for (ChunkTimes& chunk : times) {
    chunk.forward *= scale;
    chunk.input_gradients *= scale;
    chunk.weight_gradients *= scale;
  }
  return times;
}

std::vector<ChunkTimes> gather_chunks(const std::vector<ChunkTimes>& own, const Mesh& mesh,
                                      const ChunkPlacement& placement, const RankControl& control) {
  std::vector<uint64_t> bits;
  for (const ChunkTimes& chunk : own) {
    for (const double number : {chunk.forward, chunk.input_gradients, chunk.weight_gradients}) {
      bits.push_back(std::bit_cast<uint64_t>(number));
    }
  }
  bits.resize(3 * placement.rank_of_chunk.size());  // stages may have different numbers of chunks
  const std::vector<uint64_t> all = control.gather(bits);
  std::vector<ChunkTimes> result(placement.rank_of_chunk.size());
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    size_t next = static_cast<size_t>(rank) * bits.size();
    const auto take = [&] { return std::bit_cast<double>(all[next++]); };
    for (const int chunk : placement.chunks_of(mesh.stage(rank))) {
      ChunkTimes& times = result[static_cast<size_t>(chunk)];
      times.forward = take();
      times.input_gradients = take();
      times.weight_gradients = take();
    }
  }
  return result;
}

}  // namespace tessera
