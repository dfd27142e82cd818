#pragma once

#include <type_traits>

#include "ops/rotary/rotary_kernels.h"
#include "ops/support.h"

namespace tessera {

/// Rotates by the definition, for each channel i < half = channels / 2 of each head:
///   output[i] = x[i] * cosines[i] - x[i + half] * sines[i]
///   output[i + half] = x[i + half] * cosines[i] + x[i] * sines[i]
/// The inverse rotation negates the sines. Channels from `channels` on are copied.
template <typename T>
void rotary_plain(const RotaryArguments<T>& rotary, int threads) {
  using Wide = Compute<T>;
  const int64_t half = rotary.channels / 2;
  parallel_each(threads, rotary.tokens, 1, [&](int64_t token) {
    const Wide* cosines = rotary.table + token * rotary.channels;
    const Wide* sines = cosines + half;
    for (int64_t head = 0; head < rotary.heads; ++head) {
      const T* x = rotary.x + (token * rotary.heads + head) * rotary.head_dim;
      T* output = rotary.output + (token * rotary.heads + head) * rotary.head_dim;
      for (int64_t i = 0; i < half; ++i) {
        const auto first = static_cast<Wide>(x[i]);
        const auto second = static_cast<Wide>(x[i + half]);
        const Wide sine = rotary.inverse ? -sines[i] : sines[i];
        output[i] = static_cast<T>(first * cosines[i] - second * sine);
        output[i + half] = static_cast<T>(second * cosines[i] + first * sine);
      }
      for (int64_t i = rotary.channels; i < rotary.head_dim; ++i) output[i] = x[i];
    }
  });
}

/// Rotates on the processor, with the target's kernel.
template <typename T>
void rotate_on_processor(Runtime& runtime, const RotaryArguments<T>& rotary) {
  if constexpr (std::is_same_v<T, double>) {
    rotary_plain(rotary, runtime.threads());
  } else {
    use_plain(runtime.target(), dtype_of<T>) ? rotary_plain(rotary, runtime.threads())
                                             : rotary_fast(rotary, runtime.threads());
  }
}

}  // namespace tessera
