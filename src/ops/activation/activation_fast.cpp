#include "ops/activation/activation_kernels.h"
#include "ops/activation/gelu_fast.h"
#include "ops/math/vector_math.h"
#include "ops/support.h"

namespace tessera {
namespace {

struct Silu {
  ActivationPoint<float> operator()(float x) const {
    const float sigmoid = 1.0f / (1.0f + exp_fast(-x));
    return {x * sigmoid, sigmoid * (1.0f + x * (1.0f - sigmoid))};
  }
};

struct Gelu {
  ActivationPoint<float> operator()(float x) const { return gelu_fast(x); }
};

constexpr int64_t kGrain = 16384;  // elements of a thread: enough work to be worth its start

// For the formulas see GatedForward. A result may be in an operand's memory, at the same index.
// "ivdep" holds: the loops read all operands of an index before they write there.

template <typename Point, typename T>
void compute_gated(const GatedForward<T>& gated, int threads) {
  parallel_ranges(
      threads, gated.extent.elements, kGrain,
      [gate = gated.gate, up = gated.up, output = gated.output](int64_t begin, int64_t end, int) {
#pragma GCC ivdep
        for (int64_t i = begin; i < end; ++i) {
          const float value = Point{}(static_cast<float>(gate[i])).value;
          output[i] = static_cast<T>(value * static_cast<float>(up[i]));
        }
      });
}

template <typename Point, typename T>
void compute_gated(const GatedBackward<T>& gated, int threads) {
  parallel_ranges(threads, gated.extent.elements, kGrain,
                  [gate = gated.gate, up = gated.up, output_gradient = gated.output_gradient,
                   gate_gradient = gated.gate_gradient,
                   up_gradient = gated.up_gradient](int64_t begin, int64_t end, int) {
#pragma GCC ivdep
                    for (int64_t i = begin; i < end; ++i) {
                      const ActivationPoint<float> at = Point{}(static_cast<float>(gate[i]));
                      const auto gradient = static_cast<float>(output_gradient[i]);
                      const auto up_value = static_cast<float>(up[i]);
                      gate_gradient[i] = static_cast<T>(gradient * up_value * at.slope);
                      up_gradient[i] = static_cast<T>(gradient * at.value);
                    }
                  });
}

}  // namespace

template <typename Gated>
void gated_fast(const Gated& gated, Activation kind, int threads) {
  kind == Activation::silu ? compute_gated<Silu>(gated, threads)
                           : compute_gated<Gelu>(gated, threads);
}

template void gated_fast(const GatedForward<float>&, Activation, int);
template void gated_fast(const GatedForward<BFloat16>&, Activation, int);
template void gated_fast(const GatedBackward<float>&, Activation, int);
template void gated_fast(const GatedBackward<BFloat16>&, Activation, int);

}  // namespace tessera
