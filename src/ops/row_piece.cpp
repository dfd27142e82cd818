#include "ops/row_piece.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "comm/piece_indices.h"

namespace tessera {

int64_t first_row(const Program& program, Value value) {
  const Spec& spec = program.spec(value);
  if (spec.distribution.order(0).empty() || spec.shape[0] == 0) return 0;
  const int64_t all_rows = logical_extent(program.mesh(), spec.distribution, 0, spec.shape[0]);
  const std::vector<int64_t> held_rows =
      piece_of_dim(program.mesh(), spec.distribution, 0, all_rows, program.rank());
  const auto gap = std::ranges::adjacent_find(
      held_rows, [](int64_t row, int64_t next) { return next != row + 1; });
  if (gap == held_rows.end()) return held_rows.front();
  throw Error(
      "rank {} has the rows {} and {} of '{}', and not those between them; expected consecutive "
      "rows, as even pieces have them (it is {})",
      program.rank(), *gap, *(gap + 1), program.info(value).name,
      spec.distribution.text(program.mesh()));
}

}  // namespace tessera
