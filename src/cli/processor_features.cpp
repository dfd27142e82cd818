#include "cli/processor_features.h"

namespace tessera {

#ifdef __x86_64__

// The compiler defines a macro for each instruction set that it may use. Each block checks that the
// processor has that set. This function alone is compiled for every x86-64 processor.
__attribute__((target("arch=x86-64"))) const char* missing_processor_feature() {
  __builtin_cpu_init();
#ifdef __AVX2__
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return "AVX2 and FMA";
#endif
#ifdef __AVX512F__
  if (!__builtin_cpu_supports("avx512f")) return "AVX-512";
#endif
#ifdef __AVX512BW__
  if (!__builtin_cpu_supports("avx512bw")) return "AVX-512 BW";
#endif
#ifdef __AVX512DQ__
  if (!__builtin_cpu_supports("avx512dq")) return "AVX-512 DQ";
#endif
#ifdef __AVX512VL__
  if (!__builtin_cpu_supports("avx512vl")) return "AVX-512 VL";
#endif
#ifdef __AVX512VBMI2__
  if (!__builtin_cpu_supports("avx512vbmi2")) return "AVX-512 VBMI2";
#endif
#ifdef __AVX512VNNI__
  if (!__builtin_cpu_supports("avx512vnni")) return "AVX-512 VNNI";
#endif
#ifdef __AVX512IFMA__
  if (!__builtin_cpu_supports("avx512ifma")) return "AVX-512 IFMA";
#endif
#ifdef __AVX512BITALG__
  if (!__builtin_cpu_supports("avx512bitalg")) return "AVX-512 BITALG";
#endif
#ifdef __AVX512VPOPCNTDQ__
  if (!__builtin_cpu_supports("avx512vpopcntdq")) return "AVX-512 VPOPCNTDQ";
#endif
#ifdef __AVX512BF16__
  if (!__builtin_cpu_supports("avx512bf16")) return "AVX-512 BF16";
#endif
#if defined(__AVX512FP16__) && !defined(__clang__)  // clang 14 cannot ask for it
  if (!__builtin_cpu_supports("avx512fp16")) return "AVX-512 FP16";
#endif
#ifdef __GFNI__
  if (!__builtin_cpu_supports("gfni")) return "GFNI";
#endif
#ifdef __VPCLMULQDQ__
  if (!__builtin_cpu_supports("vpclmulqdq")) return "VPCLMULQDQ";
#endif
#ifdef __BMI2__
  if (!__builtin_cpu_supports("bmi2")) return "BMI2";
#endif
  return nullptr;
}

#else

const char* missing_processor_feature() { return nullptr; }

#endif

}  // namespace tessera
