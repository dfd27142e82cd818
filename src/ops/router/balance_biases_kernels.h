#pragma once

#include <cmath>
#include <cstdint>

namespace tessera {

class Stream;

/// One step of BalanceController, computed in f64. T is the type of the biases and the moments.
/// change() is constexpr so that kernels of devices can call it.
template <typename T>
struct BalanceStep {
  int64_t classes;
  double rate, beta1, beta2, epsilon;
  const int32_t* counts;  // [classes]
  const double* step;     // [1]
  T* biases;              // [classes], as are the moments
  T* first_moment;
  T* second_moment;

  /// Changes the values of class c. `total` is the sum of all counts and must not be 0.
  ///   g = counts[c] / total - 1 / classes, m = β1 m + (1 - β1) g, v = β2 v + (1 - β2) g²
  ///   biases[c] -= rate · m / (1 - β1^step) / (sqrt(v / (1 - β2^step)) + ε)
  constexpr void change(int64_t c, double total) const {
    const double g = static_cast<double>(counts[c]) / total - 1.0 / static_cast<double>(classes);
    const double m = beta1 * static_cast<double>(first_moment[c]) + (1 - beta1) * g;
    const double v = beta2 * static_cast<double>(second_moment[c]) + (1 - beta2) * g * g;
    first_moment[c] = static_cast<T>(m);
    second_moment[c] = static_cast<T>(v);
    const double corrected_m = m / (1 - pow(beta1, *step));
    const double root_v = sqrt(v / (1 - pow(beta2, *step)));
    biases[c] =
        static_cast<T>(static_cast<double>(biases[c]) - rate * corrected_m / (root_v + epsilon));
  }
};

/// One step of loss-free balancing (balance_by_sign()).
template <typename T>
struct BalanceBySign {
  int64_t classes;
  double rate;
  const double* counts;  // [classes]
  T* biases;             // [classes]

  /// Changes class c: biases[c] -= rate · sign(counts[c] · classes - total). Without a division,
  /// the comparison of whole numbers is exact.
  constexpr void change(int64_t c, double total) const {
    const double excess = counts[c] * static_cast<double>(classes) - total;
    if (excess == 0) return;
    biases[c] = static_cast<T>(static_cast<double>(biases[c]) + (excess > 0 ? -rate : rate));
  }
};

/// Puts a step into the stream. Balance is BalanceStep<float> or BalanceBySign<float>.
template <typename Vendor, typename Balance>
void change_biases_device(const Balance& balance, Stream& stream);

}  // namespace tessera
