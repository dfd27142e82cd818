#include "hardware/random_fill.h"

#include <algorithm>
#include <cstring>

#include "base/parallel.h"
#include "base/random.h"
#include "tensor/dispatch.h"

namespace tessera {

void fill_normal(const Tensor& tensor, std::string_view name, double deviation, int threads) {
  // A prime, so the rows of a matrix repeat only after this many rows.
  constexpr int64_t kDistinct = 1048573;
  const CounterRandom random(1, name);
  dispatch_floating(tensor.dtype(), [&](auto type) {
    using T = decltype(type);
    T* out = tensor.data<T>();
    const int64_t distinct = std::min(tensor.elements(), kDistinct);
    parallel_ranges(threads, distinct, 4096, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const double value = deviation * random.normal(static_cast<uint64_t>(i));
        out[i] = static_cast<T>(static_cast<Compute<T>>(value));
      }
    });
    const int64_t copies = (tensor.elements() - distinct + kDistinct - 1) / kDistinct;
    parallel_items(threads, copies, [&](int64_t copy, int) {
      const int64_t begin = (copy + 1) * kDistinct;
      const int64_t count = std::min(kDistinct, tensor.elements() - begin);
      std::memcpy(out + begin, out, static_cast<size_t>(count) * sizeof(T));
    });
  });
}

}  // namespace tessera
