#pragma once

#include <type_traits>

#include "ops/rotary/rotary_kernels.h"
#include "ops/rotary/rotary_plain.h"
#include "ops/support.h"

namespace tessera {

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
