#pragma once

#include <string>
#include <vector>

#include "ops/gemm/device_gemm.h"
#include "ops/gemm/tuned_products.h"

namespace tessera {

// The functions of device_gemm.h for the device cuda, by cuBLASLt. The first run of a shape makes
// descriptions and chooses an algorithm, which the runtime keeps. Later runs only enqueue.

void cublaslt_gemm(const Execution& execution, const GemmShape& shape, const void* a, const void* b,
                   void* c, std::byte* workspace);
void require_cublaslt(Runtime& runtime);
std::string cublaslt_version(Runtime& runtime);
std::vector<GemmShape> cublaslt_shapes(Runtime& runtime);
TunedProduct tune_cublaslt(Runtime& runtime, const GemmShape& shape, const TuningBudget& budget);

}  // namespace tessera
