#include "model/token_distribution.h"

#include <span>

#include "base/error.h"

namespace tessera {

TokenDistribution distribute_tokens(const Mesh& mesh, int64_t sequences) {
  TokenDistribution result;
  int64_t ranks = 1;
  const std::span<const Axis> levels = mesh.data();
  for (auto level = levels.rbegin(); level != levels.rend(); ++level) {  // the outermost first
    result.tokens = result.tokens.with(*level, sharded(0));
    ranks *= mesh.size(*level);
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
