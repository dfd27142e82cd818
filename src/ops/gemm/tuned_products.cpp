#include "ops/gemm/tuned_products.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/quantile.h"
#include "base/random.h"
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

std::unique_ptr<DeviceMemory> random_operand(Accelerator& accelerator, int64_t bytes,
                                             uint64_t seed) {
  // The numbers repeat after 1 MiB: more would only take longer to make.
  constexpr int64_t kDistinct = int64_t{1} << 20;
  auto memory = accelerator.allocate(bytes);
  const CounterRandom random(seed, "tuned products");
  std::vector<std::byte> block(static_cast<size_t>(std::min(kDistinct, bytes)));
  for (size_t i = 0; i + sizeof(uint16_t) <= block.size(); i += sizeof(uint16_t)) {
    // Numbers between 1/2 and 2 of either sign: the upper half of an f32, or a whole bf16.
    const auto bits = static_cast<uint16_t>((random.bits(i) & 0x80ffU) | 0x3f00U);
    std::memcpy(block.data() + i, &bits, sizeof(bits));
  }
  for (int64_t offset = 0; offset < bytes; offset += kDistinct) {
    const auto part = static_cast<size_t>(std::min(kDistinct, bytes - offset));
    accelerator.upload(std::span(block).first(part),
                       static_cast<std::byte*>(memory->address()) + offset);
  }
  return memory;
}

int64_t runs_of_sample(double seconds, const TuningBudget& budget) {
  return std::clamp<int64_t>(std::llround(budget.seconds_a_sample / seconds), 1, 1000);
}

}  // namespace tessera
