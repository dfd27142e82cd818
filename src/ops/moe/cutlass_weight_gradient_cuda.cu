#include "ops/moe/cutlass_grouped_kernel.h"

namespace tessera {

GroupedOutcome cutlass_weight_gradient(const GroupedCall& call) {
  using namespace cutlass_grouped;
  return Product<ColumnMajor, RowMajor, float, float>::run(call);
}

}  // namespace tessera
