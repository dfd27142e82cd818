#include "ops/gemm/split_gemm.h"

#include <algorithm>

#include "base/error.h"

namespace tessera {
namespace {

class SplitGemm final : public Gemm {
 public:
  SplitGemm(const GemmShape& shape,
            const std::function<std::unique_ptr<Gemm>(const GemmShape&)>& make)
      : rows_(shape.m / 2),
        a_bytes_(rows_ * (shape.transpose_a ? 1 : shape.lda) * dtype_size(shape.input)),
        c_bytes_(rows_ * shape.ldc * dtype_size(shape.output)),
        first_(make(part(shape, rows_))),
        second_(make(part(shape, shape.m - rows_))) {}

  int64_t workspace_bytes() const override {
    return std::max(first_->workspace_bytes(), second_->workspace_bytes());
  }

  bool reduced() const override { return true; }

  void multiply(const void* a, const void* b, void* c, std::byte* workspace) const override {
    first_->run(a, b, c, workspace);
    second_->run(static_cast<const std::byte*>(a) + a_bytes_, b,
                 static_cast<std::byte*>(c) + c_bytes_, workspace);
  }

 private:
  static GemmShape part(GemmShape shape, int64_t rows) {
    shape.m = rows;
    return shape;
  }

  int64_t rows_;
  int64_t a_bytes_;  // from the first half's rows of A to the second half's
  int64_t c_bytes_;
  std::unique_ptr<Gemm> first_;
  std::unique_ptr<Gemm> second_;
};

}  // namespace

std::unique_ptr<Gemm> make_split_gemm(
    GemmShape shape, const std::function<std::unique_ptr<Gemm>(const GemmShape&)>& make) {
  TESSERA_CHECK(shape.m > 1 && shape.lda > 0 && shape.ldc > 0,
                "a product of {} rows is not cut, nor one with leading dimensions left out",
                shape.m);
  shape.packed_b = false;
  return std::make_unique<SplitGemm>(shape, make);
}

}  // namespace tessera
