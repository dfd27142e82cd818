#include "model/parameter.h"

#include <cmath>
#include <utility>

#include "base/parallel.h"
#include "base/random.h"
#include "tensor/dispatch.h"

namespace tessera {
namespace {

/// The element's normal number; one beyond the cutoff is replaced by that of a further index, far
/// from those of other elements.
double truncated_normal(const CounterRandom& random, uint64_t element, double cutoff) {
  constexpr uint64_t kFurther = uint64_t{1} << 48;
  double value = random.normal(element);
  for (uint64_t attempt = 1; cutoff > 0 && std::abs(value) > cutoff; ++attempt) {
    value = random.normal(element + attempt * kFurther);
  }
  return value;
}

}  // namespace

void initialize(const ParameterSpec& spec, uint64_t seed, const Tensor& values, int threads) {
  const Initialization& how = spec.initialization;
  const CounterRandom random(seed, spec.name);
  dispatch_wide(values.dtype(), [&](auto type) {
    using Wide = decltype(type);
    Wide* out = values.data<Wide>();
    parallel_ranges(threads, values.elements(), 4096, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const double drawn =
            how.deviation > 0
                ? how.deviation * truncated_normal(random, static_cast<uint64_t>(i), how.cutoff)
                : how.constant;
        // Drawn in f32 for every type, so that an f64 model is the f32 one exactly.
        out[i] = static_cast<Wide>(static_cast<float>(drawn));
      }
    });
  });
}

Value ParameterList::declare(Builder& builder, std::string_view name, const Shape& shape,
                             DType dtype, ParameterRole role, const Initialization& initialization,
                             std::string unit) {
  const std::string qualified = builder.qualified(name);
  specs_.push_back({qualified, shape, dtype, role, initialization, std::move(unit)});
  values_.push_back(builder.parameter(qualified, {shape, dtype, {}}));
  return values_.back();
}

int64_t ParameterList::elements() const {
  int64_t total = 0;
  for (const ParameterSpec& spec : specs_) total += spec.shape.elements();
  return total;
}

}  // namespace tessera
