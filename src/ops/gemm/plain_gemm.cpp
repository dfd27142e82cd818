#include "ops/gemm/plain_gemm.h"

#include <vector>

#include "ops/support.h"

namespace tessera {
namespace {

class PlainGemm final : public Gemm {
 public:
  explicit PlainGemm(const GemmShape& shape) : shape_(shape) {}

  int64_t workspace_bytes() const override { return 0; }

  void multiply(const void* a, const void* b, void* c, std::byte*) const override {
    dispatch_floating(shape_.input, [&](auto input) {
      dispatch_floating(shape_.output, [&](auto output) {
        sum_rows(static_cast<const decltype(input)*>(a), static_cast<const decltype(input)*>(b),
                 static_cast<decltype(output)*>(c));
      });
    });
  }

 private:
  // c[i, j] = sum_p a[i, p] * b[p, j], plus the previous c[i, j] if `accumulate`
  template <typename In, typename Out>
  void sum_rows(const In* a, const In* b, Out* c) const {
    using Wide = Compute<In>;
    const int64_t lda = shape_.lda, ldb = shape_.ldb, ldc = shape_.ldc;
    parallel_ranges(shape_.threads, shape_.m, 1, [&](int64_t begin, int64_t end, int) {
      std::vector<Wide> sums(static_cast<size_t>(shape_.n));
      for (int64_t i = begin; i < end; ++i) {
        std::fill(sums.begin(), sums.end(), Wide{0});
        for (int64_t p = 0; p < shape_.k; ++p) {
          const auto left = static_cast<Wide>(shape_.transpose_a ? a[p * lda + i] : a[i * lda + p]);
          for (int64_t j = 0; j < shape_.n; ++j) {
            const In& right = shape_.transpose_b ? b[j * ldb + p] : b[p * ldb + j];
            sums[static_cast<size_t>(j)] += left * static_cast<Wide>(right);
          }
        }
        for (int64_t j = 0; j < shape_.n; ++j) {
          Out& result = c[i * ldc + j];
          const Wide before =
              shape_.accumulate ? static_cast<Wide>(static_cast<Compute<Out>>(result)) : Wide{0};
          result =
              static_cast<Out>(static_cast<Compute<Out>>(before + sums[static_cast<size_t>(j)]));
        }
      }
    });
  }

  GemmShape shape_;
};

}  // namespace

std::unique_ptr<Gemm> make_plain_gemm(const GemmShape& shape) {
  return std::make_unique<PlainGemm>(shape);
}

}  // namespace tessera
