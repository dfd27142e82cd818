#include "state/adamw.h"

#include <algorithm>
#include <cmath>
#include <iterator>
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

/// A piece of a parameter's flat memory: the parameters' pieces together are the work of one
/// parallel region, however small they are.
struct Piece {
  const ParameterState* state;
  int64_t begin;
  int64_t end;
};

std::vector<Piece> pieces_of(const ParameterStore& store) {
  constexpr int64_t kElements = 65536;
  std::vector<Piece> pieces;
  for (const ParameterState& state : store.parameters()) {
    const int64_t count = state.master.elements();
    for (int64_t begin = 0; begin < count; begin += kElements) {
      pieces.push_back({&state, begin, std::min(count, begin + kElements)});
    }
  }
  return pieces;
}

/// Calls body(index, piece) for each piece, on all threads.
template <typename Body>
void for_each_piece(const std::vector<Piece>& pieces, int threads, Body&& body) {
  parallel_ranges(threads, std::ssize(pieces), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      body(static_cast<size_t>(i), pieces[static_cast<size_t>(i)]);
    }
  });
}

template <typename Wide, typename Weight>
void update_piece(const Coefficients<Wide>& coefficients, const Piece& piece) {
  const ParameterState& state = *piece.state;
  update(coefficients, piece.begin, piece.end, state.gradient.data<Wide>(),
         state.first_moment.data<Wide>(), state.second_moment.data<Wide>(),
         state.master.data<Wide>(), state.weight.data<Weight>());
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
  if (config.decay_rule == DecayRule::all) return true;
  if (spec.role == ParameterRole::norm) return false;
  return config.decay_rule != DecayRule::no_embedding || spec.role != ParameterRole::embedding;
}

void adamw_step(const ParameterStore& store, const OptimizerConfig& config, const AdamWStep& step,
                int threads) {
  for_each_piece(pieces_of(store), threads, [&](size_t, const Piece& piece) {
    const bool decay = decays(config, piece.state->spec);
    switch (piece.state->spec.dtype) {
      case DType::f64:
        update_piece<double, double>(coefficients<double>(config, step, decay), piece);
        break;
      case DType::f32:
        update_piece<float, float>(coefficients<float>(config, step, decay), piece);
        break;
      default:
        update_piece<float, BFloat16>(coefficients<float>(config, step, decay), piece);
    }
  });
}

double gradient_norm(const ParameterStore& store, int threads) {
  const std::vector<Piece> pieces = pieces_of(store);
  std::vector<double> sums(pieces.size());
  for_each_piece(pieces, threads, [&](size_t index, const Piece& piece) {
    dispatch_wide(piece.state->gradient.dtype(), [&](auto type) {
      const auto* gradient = piece.state->gradient.data<decltype(type)>();
      sums[index] = sum_of_squares(gradient + piece.begin, piece.end - piece.begin);
    });
  });
  double total = 0;
  for (const double sum : sums) total += sum;
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
