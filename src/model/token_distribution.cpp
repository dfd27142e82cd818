#include "model/token_distribution.h"

#include <ranges>

#include "base/error.h"

namespace tessera {

TokenDistribution distribute_tokens(const Mesh& mesh, int64_t sequences) {
  TokenDistribution result;
  int64_t ranks = 1;
  for (const Axis level : mesh.data() | std::views::reverse) {  // the outermost first
    result.tokens = result.tokens.with(level, sharded(0));
    ranks *= mesh.size(level);
  }
  if (sequences % ranks != 0) {
    throw Error("{} sequences do not divide over {} data-parallel ranks", sequences, ranks);
  }
  const int64_t own = sequences / ranks;
  result.tokens = result.tokens.with(mesh.context(),
                                     sharded(0, {.kind = PieceKind::zigzag}, /*factor=*/1, own));
  result.positions = sharded(0, {}, /*factor=*/1, own);
  return result;
}

}  // namespace tessera
