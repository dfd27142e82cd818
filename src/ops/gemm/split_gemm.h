#pragma once

#include <functional>
#include <memory>

#include "ops/gemm/gemm.h"

namespace tessera {

/// Returns a product made of two of `make`'s products, each with half of the rows of C. B is read
/// in its given layout.
std::unique_ptr<Gemm> make_split_gemm(
    GemmShape shape, const std::function<std::unique_ptr<Gemm>(const GemmShape&)>& make);

}  // namespace tessera
