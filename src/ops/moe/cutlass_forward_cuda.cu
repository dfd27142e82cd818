#include "ops/moe/cutlass_grouped_kernel.h"

namespace tessera {

GroupedOutcome cutlass_forward(const GroupedCall& call) {
  using namespace cutlass_grouped;
  return Product<RowMajor, ColumnMajor, void, cutlass::bfloat16_t>::run(call);
}

}  // namespace tessera
