#include "ops/moe/cutlass_grouped_kernel.h"

namespace tessera {

GroupedOutcome cutlass_wide_input_gradient(const GroupedCall& call) {
  using namespace cutlass_grouped;
  return Product<RowMajor, RowMajor, float, float>::run(call);
}

}  // namespace tessera
