#include "ops/gemm/gemm.h"

#include <unordered_map>

#include "base/hash.h"
#include "ops/gemm/plain_gemm.h"
#include "ops/support.h"

namespace tessera {
namespace {

struct ShapeHash {
  size_t operator()(const GemmShape& shape) const {
    const int64_t fields[] = {shape.m,
                              shape.n,
                              shape.k,
                              static_cast<int64_t>(shape.input),
                              static_cast<int64_t>(shape.output),
                              int64_t{shape.transpose_a} | int64_t{shape.transpose_b} << 1 |
                                  int64_t{shape.accumulate} << 2,
                              shape.lda,
                              shape.ldb,
                              shape.ldc,
                              shape.threads};
    return hash(std::as_bytes(std::span(fields)));
  }
};

struct GemmCache {
  std::unordered_map<GemmShape, std::unique_ptr<Gemm>, ShapeHash> products;
};

/// Leading dimensions written out, so that equal products are one entry.
GemmShape with_leading(GemmShape shape) {
  if (shape.lda == 0) shape.lda = shape.transpose_a ? shape.m : shape.k;
  if (shape.ldb == 0) shape.ldb = shape.transpose_b ? shape.k : shape.n;
  if (shape.ldc == 0) shape.ldc = shape.n;
  return shape;
}

std::unique_ptr<Gemm> make(const Context& context, const GemmShape& shape) {
  const bool empty = shape.m == 0 || shape.n == 0 || shape.k == 0;
  if (!empty && !use_plain(context, shape.input)) {
    if (auto fast = make_onednn_gemm(shape)) return fast;
  }
  return make_plain_gemm(shape);
}

}  // namespace

const Gemm& prepare_gemm(Context& context, const GemmShape& asked) {
  const GemmShape shape = with_leading(asked);
  std::unique_ptr<Gemm>& product = context.cache<GemmCache>().products[shape];
  if (!product) product = make(context, shape);
  return *product;
}

}  // namespace tessera
