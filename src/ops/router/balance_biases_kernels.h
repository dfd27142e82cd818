#pragma once

#include <cmath>
#include <cstdint>

namespace tessera {

class Stream;

/// One step of the controller. All is computed in f64; T is the type of the kept values.
template <typename T>
struct BalanceStep {
  int64_t classes;
  double rate, beta1, beta2, epsilon;
  const int32_t* counts;  // [classes]
  const double* step;     // [1]
  T* biases;              // [classes], as are the moments
  T* first_moment;
  T* second_moment;

  /// Changes the values of one class, given the sum of all counts, which is not 0:
  ///   g = counts[c] / total - 1 / classes, m = β1 m + (1 - β1) g, v = β2 v + (1 - β2) g²
  ///   biases[c] -= rate · m / (1 - β1^step) / (sqrt(v / (1 - β2^step)) + ε)
  constexpr void change(int64_t c, double total) const {
    const double gradient =
        static_cast<double>(counts[c]) / total - 1.0 / static_cast<double>(classes);
    const double first = beta1 * static_cast<double>(first_moment[c]) + (1 - beta1) * gradient;
    const double second =
        beta2 * static_cast<double>(second_moment[c]) + (1 - beta2) * gradient * gradient;
    first_moment[c] = static_cast<T>(first);
    second_moment[c] = static_cast<T>(second);
    const double mean = first / (1 - pow(beta1, *step));
    const double deviation = sqrt(second / (1 - pow(beta2, *step)));
    biases[c] =
        static_cast<T>(static_cast<double>(biases[c]) - rate * mean / (deviation + epsilon));
  }
};

template <typename T>
struct BalanceBySign {
  int64_t classes;
  double rate;
  const double* counts;  // [classes]
  T* biases;             // [classes]

  /// Changes one class: biases[c] += rate · sign(total / classes - counts[c])
  constexpr void change(int64_t c, double total) const {
    const double above = counts[c] * static_cast<double>(classes) - total;
    if (above == 0) return;
    biases[c] = static_cast<T>(static_cast<double>(biases[c]) + (above > 0 ? -rate : rate));
  }
};

// Device kernels. They put their work into the stream.
template <typename Vendor>
void step_balance_device(const BalanceStep<float>& balance, Stream& stream);
template <typename Vendor>
void balance_by_sign_device(const BalanceBySign<float>& balance, Stream& stream);

}  // namespace tessera
