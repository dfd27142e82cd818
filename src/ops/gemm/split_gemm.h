#pragma once

#include <functional>
#include <memory>

#include "ops/gemm/gemm.h"

namespace tessera {

/// A product as two of `make`'s, each of half of the rows of C. B is taken as it lies.
std::unique_ptr<Gemm> make_split_gemm(
    GemmShape shape, const std::function<std::unique_ptr<Gemm>(const GemmShape&)>& make);

}  // namespace tessera
