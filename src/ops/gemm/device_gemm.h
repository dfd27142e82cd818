#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "ops/gemm/gemm.h"
#include "ops/gemm/tuned_products.h"
#include "program/operation.h"

namespace tessera {

/// Thrown if a device's library has no algorithm for a product.
class NoProductError : public Error {
 public:
  using Error::Error;
};

/// Enqueues a matrix product on an execution's stream. The operands are in the accelerator's
/// memory. The emulated device multiplies with the processor's products, the device cuda with
/// cuBLASLt. The device cuda chooses the algorithm by the shape and the operands' alignment (up to
/// 16 bytes). So in one process, equal operands of one alignment give equal bits. `workspace` has
/// the bytes that device_gemm_workspace_bytes() plans. Throws Error if the device's library is
/// missing, and NoProductError, which names the shape, if the library has no such product.
void device_gemm(const Execution& execution, const GemmShape& shape, const void* a, const void* b,
                 void* c, std::byte* workspace);

/// Opens the library of products of the runtime's device. Throws Error if it is missing, or if
/// there are no products on that device yet.
void require_device_gemm(Runtime& runtime);

/// Returns the scratch bytes for one product on an accelerator. It depends on the arguments alone,
/// so the device need not be present. A GPU has the same bytes for all shapes: the limit within
/// which its library chooses algorithms.
int64_t device_gemm_workspace_bytes(const Target& target, const GemmShape& shape);

/// Returns the version of the library that multiplies on the runtime's device: "cuBLASLt 130100".
/// This and the functions below throw Error for a device without algorithms to choose from.
std::string device_gemm_library(Runtime& runtime);
/// Returns the shapes that the runtime has multiplied on its device, in a fixed order.
std::vector<GemmShape> device_gemm_shapes(Runtime& runtime);
/// Measures the algorithms that the library offers for a shape on the runtime's device, on random
/// numbers. Returns the fastest.
TunedProduct tune_device_gemm(Runtime& runtime, const GemmShape& shape, const TuningBudget& budget);

// The device hip needs hipBLASLt, AMD's counterpart of cuBLASLt, which this version does not call
// yet. So these two functions throw Error, which says what is missing: for products, and for
// grouped products in bf16 of the operation of this name.
[[noreturn]] void require_hipblaslt(Runtime& runtime);
[[noreturn]] void require_hipblaslt_groups(std::string_view operation);

}  // namespace tessera
