#include "ops/activation/activation_kernels.h"
#include "ops/activation/gelu_fast.h"
#include "ops/math/vector_math.h"
#include "ops/support.h"

namespace tessera {
namespace {

struct SiluFast {
  ActivationPoint<float> operator()(float x) const {
    const float sigmoid = 1.0f / (1.0f + exp_fast(-x));
    return {x * sigmoid, sigmoid * (1.0f + x * (1.0f - sigmoid))};
  }
};

struct GeluFast {
  ActivationPoint<float> operator()(float x) const { return gelu_fast(x); }
};

constexpr int64_t kGatedGrain = 16384;  // elements that are worth the start of a thread

// GatedForward and GatedBackward have the formulas. ActivationAt{}(x) returns the activation and
// its derivative at x. "ivdep" (iterations are independent) holds, although a result may overwrite
// an operand: the loops read all operands of an index before they write at this index.

template <typename ActivationAt, typename T>
void compute_gated(const GatedForward<T>& arguments, int threads) {
  parallel_ranges(threads, arguments.extent.elements, kGatedGrain,
                  [gate = arguments.gate, up = arguments.up, output = arguments.output](
                      int64_t begin, int64_t end, int) {
#pragma GCC ivdep
                    for (int64_t i = begin; i < end; ++i) {
                      const float value = ActivationAt{}(static_cast<float>(gate[i])).value;
                      output[i] = static_cast<T>(value * static_cast<float>(up[i]));
                    }
                  });
}

template <typename ActivationAt, typename T>
void compute_gated(const GatedBackward<T>& arguments, int threads) {
  parallel_ranges(
      threads, arguments.extent.elements, kGatedGrain,
      [gate = arguments.gate, up = arguments.up, output_gradient = arguments.output_gradient,
       gate_gradient = arguments.gate_gradient,
       up_gradient = arguments.up_gradient](int64_t begin, int64_t end, int) {
#pragma GCC ivdep
        for (int64_t i = begin; i < end; ++i) {
          const auto [value, slope] = ActivationAt{}(static_cast<float>(gate[i]));
          const auto gradient = static_cast<float>(output_gradient[i]);
          const auto up_value = static_cast<float>(up[i]);
          gate_gradient[i] = static_cast<T>(gradient * up_value * slope);
          up_gradient[i] = static_cast<T>(gradient * value);
        }
      });
}

}  // namespace

template <typename Arguments>
void gated_fast(const Arguments& arguments, Activation kind, int threads) {
  kind == Activation::silu ? compute_gated<SiluFast>(arguments, threads)
                           : compute_gated<GeluFast>(arguments, threads);
}

template void gated_fast(const GatedForward<float>&, Activation, int);
template void gated_fast(const GatedForward<BFloat16>&, Activation, int);
template void gated_fast(const GatedBackward<float>&, Activation, int);
template void gated_fast(const GatedBackward<BFloat16>&, Activation, int);

}  // namespace tessera
