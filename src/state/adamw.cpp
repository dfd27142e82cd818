#include "state/adamw.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/lane_sum.h"
#include "base/parallel.h"
#include "tensor/dispatch.h"

namespace tessera {
namespace {

template <typename Wide>
struct Coefficients {
  Wide beta1, beta2, epsilon, keep, step_size, inverse_correction2, scale;
};

template <typename Wide, typename Weight>
void update(const Coefficients<Wide>& c, int64_t begin, int64_t end, const Wide* gradient,
            Wide* first, Wide* second, Wide* master, Weight* weight) {
#pragma GCC ivdep
  for (int64_t i = begin; i < end; ++i) {
    const Wide g = c.scale * gradient[i];
    const Wide m = c.beta1 * first[i] + (1 - c.beta1) * g;
    const Wide v = c.beta2 * second[i] + (1 - c.beta2) * g * g;
    first[i] = m;
    second[i] = v;
    const Wide w =
        c.keep * master[i] - c.step_size * m / (std::sqrt(v * c.inverse_correction2) + c.epsilon);
    master[i] = w;
    weight[i] = static_cast<Weight>(w);
  }
}

template <typename Wide, typename Weight>
void update_parameter(const ParameterState& state, const Coefficients<Wide>& coefficients,
                      int threads) {
  const Wide* gradient = state.gradient.data<Wide>();
  Wide* first = state.first_moment.data<Wide>();
  Wide* second = state.second_moment.data<Wide>();
  Wide* master = state.master.data<Wide>();
  Weight* weight = state.weight.data<Weight>();
  parallel_ranges(threads, state.master.elements(), 16384, [&](int64_t begin, int64_t end, int) {
    update(coefficients, begin, end, gradient, first, second, master, weight);
  });
}

template <typename Wide>
Coefficients<Wide> coefficients(const OptimizerConfig& config, const AdamWStep& step, bool decay) {
  const auto t = static_cast<double>(step.step);
  const double decayed = decay ? step.learning_rate * config.weight_decay : 0.0;
  return {.beta1 = static_cast<Wide>(config.beta1),
          .beta2 = static_cast<Wide>(config.beta2),
          .epsilon = static_cast<Wide>(config.epsilon),
          .keep = static_cast<Wide>(1.0 - decayed),
          .step_size = static_cast<Wide>(step.learning_rate / (1.0 - std::pow(config.beta1, t))),
          .inverse_correction2 = static_cast<Wide>(1.0 / (1.0 - std::pow(config.beta2, t))),
          .scale = static_cast<Wide>(step.gradient_scale)};
}

template <typename Wide>
double sum_of_squares(const Wide* values, int64_t count) {
  return lane_sum<double>(count, [=](int64_t i) {
    const auto value = static_cast<double>(values[i]);
    return value * value;
  });
}

}  // namespace

bool decays(const OptimizerConfig& config, const ParameterSpec& spec) {
  if (config.decay_rule == "all") return true;
  if (spec.role == ParameterRole::norm) return false;
  return config.decay_rule != "no_embedding" || spec.role != ParameterRole::embedding;
}

void adamw_step(const ParameterStore& store, const OptimizerConfig& config, const AdamWStep& step,
                int threads) {
  for (const ParameterState& state : store.parameters()) {
    const bool decay = decays(config, state.spec);
    switch (state.spec.dtype) {
      case DType::f64:
        update_parameter<double, double>(state, coefficients<double>(config, step, decay), threads);
        break;
      case DType::f32:
        update_parameter<float, float>(state, coefficients<float>(config, step, decay), threads);
        break;
      default:
        update_parameter<float, BFloat16>(state, coefficients<float>(config, step, decay), threads);
    }
  }
}

double gradient_norm(const ParameterStore& store, int threads) {
  constexpr int64_t kBlock = 65536;
  double total = 0;
  for (const ParameterState& state : store.parameters()) {
    const int64_t count = state.gradient.elements();
    const int64_t blocks = (count + kBlock - 1) / kBlock;
    std::vector<double> sums(static_cast<size_t>(blocks));
    dispatch_wide(state.gradient.dtype(), [&](auto type) {
      const auto* gradient = state.gradient.data<decltype(type)>();
      parallel_ranges(threads, blocks, 1, [&](int64_t begin, int64_t end, int) {
        for (int64_t block = begin; block < end; ++block) {
          const int64_t start = block * kBlock;
          sums[static_cast<size_t>(block)] =
              sum_of_squares(gradient + start, std::min(count - start, kBlock));
        }
      });
    });
    for (const double sum : sums) total += sum;
  }
  return std::sqrt(total);
}

double adamw_bytes(const ParameterStore& store) {
  double bytes = gradient_bytes(store);
  for (const ParameterState& state : store.parameters()) {
    const int64_t wide =
        state.first_moment.bytes() + state.second_moment.bytes() + state.master.bytes();
    const bool rounded = state.weight.dtype() != state.master.dtype();
    bytes += static_cast<double>(2 * wide + (rounded ? state.weight.bytes() : 0));
  }
  return bytes;
}

double gradient_bytes(const ParameterStore& store) {
  double bytes = 0;
  for (const ParameterState& state : store.parameters()) {
    bytes += static_cast<double>(state.gradient.bytes());
  }
  return bytes;
}

}  // namespace tessera
