#include "base/error.h"
#include "ops/gemm/hipblaslt_gemm.h"

namespace tessera {

void hipblaslt_gemm(const Execution&, const GemmShape& shape, const void*, const void*, void*,
                    std::byte*) {
  throw Error(
      "a product [{}, {}] x [{}, {}] of {} on the device hip: matrix products there are "
      "hipBLASLt's, which this version does not call yet; set run.device to \"cpu\" or \"cuda\"",
      shape.m, shape.k, shape.k, shape.n, dtype_name(shape.input));
}

}  // namespace tessera
