#include "base/denormals.h"

#if defined(__SSE2__)
#include <pmmintrin.h>
#include <xmmintrin.h>
#elif defined(__aarch64__)
#include <cstdint>
#else
#error "flush_denormals() does not know this processor"
#endif

namespace tessera {

void flush_denormals() {
#if defined(__SSE2__)
  _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_ON);
  _MM_SET_DENORMALS_ZERO_MODE(_MM_DENORMALS_ZERO_ON);
#elif defined(__aarch64__)
  constexpr uint64_t kFlushToZero = uint64_t{1} << 24;
  uint64_t control = 0;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  asm volatile("msr fpcr, %0" ::"r"(control | kFlushToZero));
#endif
}

}  // namespace tessera
