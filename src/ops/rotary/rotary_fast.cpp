#include <algorithm>

#include "ops/rotary/rotary_kernels.h"
#include "ops/support.h"

namespace tessera {
namespace {

/// Rotates one head of one token. `sign` is -1 for the inverse rotation. `output` may be x: a pair
/// of channels is read before it is written, so "ivdep" holds.
template <typename T>
void rotate_head(const T* x, const float* cosines, const float* sines, float sign, T* output,
                 int64_t half) {
#pragma GCC ivdep
  for (int64_t i = 0; i < half; ++i) {
    const auto first = static_cast<float>(x[i]);
    const auto second = static_cast<float>(x[i + half]);
    const float sine = sign * sines[i];
    output[i] = static_cast<T>(first * cosines[i] - second * sine);
    output[i + half] = static_cast<T>(second * cosines[i] + first * sine);
  }
}

}  // namespace

template <typename T>
void rotary_fast(const RotaryArguments<T>& rotary, int threads) {
  const int64_t half = rotary.channels / 2;
  const float sign = rotary.inverse ? -1.0f : 1.0f;
  const bool copies = rotary.output != rotary.x && rotary.channels < rotary.head_dim;
  const int64_t grain = row_grain(rotary.heads * rotary.head_dim);
  parallel_each(threads, rotary.tokens, grain, [&](int64_t token) {
    const float* cosines = rotary.table + token * rotary.channels;
    for (int64_t head = 0; head < rotary.heads; ++head) {
      const int64_t start = (token * rotary.heads + head) * rotary.head_dim;
      const T* x = rotary.x + start;
      T* output = rotary.output + start;
      rotate_head(x, cosines, cosines + half, sign, output, half);
      if (copies) std::copy(x + rotary.channels, x + rotary.head_dim, output + rotary.channels);
    }
  });
}

template void rotary_fast(const RotaryArguments<float>&, int);
template void rotary_fast(const RotaryArguments<BFloat16>&, int);

}  // namespace tessera
