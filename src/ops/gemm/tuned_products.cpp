#include "ops/gemm/tuned_products.h"

#include <algorithm>

#include "base/error.h"
#include "base/quantile.h"
#include "ops/gemm/gemm_plan.h"

namespace tessera {

const TunedProduct* TunedProducts::find(const GemmShape& shape, bool tf32) const {
  const auto found = std::ranges::find_if(products, [&](const TunedProduct& product) {
    return product.tf32 == tf32 && product.shape == tuned_shape(shape);
  });
  return found == products.end() ? nullptr : &*found;
}

GemmShape tuned_shape(GemmShape shape) {
  shape.threads = 1;
  shape.packed_b = false;
  return with_leading(shape);
}

size_t fastest_candidate(std::span<const std::vector<double>> seconds) {
  constexpr double kNoiseFactor = 0.99;
  TESSERA_CHECK(!seconds.empty(), "no candidates");
  size_t best = 0;
  double least = kNoiseFactor * quantile(seconds[0], 0.5);
  for (size_t i = 1; i < seconds.size(); ++i) {
    const double median = quantile(seconds[i], 0.5);
    if (median >= least) continue;
    best = i;
    least = median;
  }
  return best;
}

}  // namespace tessera
