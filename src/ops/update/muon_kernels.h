#pragma once

#include <cstdint>

#include "base/bfloat16.h"
#include "ops/update/update_kernels.h"

namespace tessera {

/// The coefficients a, b and c of Keller Jordan's polynomial of the fifth degree (newton_schulz.h).
/// Five steps bring singular values between about 0.002 and 1 to between about 0.7 and 1.2.
inline constexpr double kNewtonSchulzA = 3.4445;
inline constexpr double kNewtonSchulzB = -4.7750;
inline constexpr double kNewtonSchulzC = 2.0315;

/// Returns 1 or -1: entry i of the vector along which a distance from I is taken (muon_measures.h).
/// It is the parity of the bits of (i + 1) · 2^64 / φ, modulo 2^64: cheap and with no short period.
constexpr float muon_probe_sign(int64_t i) {
  uint64_t bits = (static_cast<uint64_t>(i) + 1) * 0x9e3779b97f4a7c15ULL;
  for (int half = 32; half > 0; half /= 2) bits ^= bits >> half;
  return (bits & 1) == 0 ? 1.0f : -1.0f;
}

// Rows of a DeviceTable (update_kernels.h), one for each matrix. T is the type that is
// orthogonalised, float or BFloat16.

template <typename T>
struct MuonMomentumRow {
  static constexpr int64_t kPerBlock = 16384;
  int64_t first_block;
  int64_t count;
  const float* gradient;
  float* momentum;
  T* out;
};

template <typename T>
struct MuonUpdateRow {
  static constexpr int64_t kPerBlock = 16384;
  int64_t first_block;
  int64_t count;
  int64_t decays;  // 0 or 1
  int64_t factor;  // the bits of a double: rows are compared by their bytes
  const T* update;
  float* master;
  T* weight;  // null if the master is the weight
};

template <typename T>
struct MatrixNormRow {
  static constexpr int64_t kPerBlock = 16384;
  int64_t first_block;
  int64_t count;
  const T* values;
};

// Device kernels. They put their work into the stream. All pointers are to device memory.

/// These two compute the formulas of muon_momentum() and muon_update() for all matrices.
template <typename Vendor, typename T>
void muon_momentum_device(const double* scale, double momentum,
                          const DeviceTable<MuonMomentumRow<T>>& matrices, Stream& stream);
template <typename Vendor, typename T>
void muon_update_device(const double* scale, const double* learning_rate, double weight_decay,
                        const DeviceTable<MuonUpdateRow<T>>& matrices, Stream& stream);

/// Writes factors[i] = 1 / the norm of matrix i, or 0 if the norm is 0, or NaN if it is NaN.
/// `partial` has an element for each of the table's blocks.
template <typename Vendor, typename T>
void inverse_norms_device(const DeviceTable<MatrixNormRow<T>>& matrices, double* partial,
                          double* factors, Stream& stream);
/// Writes target[i] = *factor · source[i]. Both may be the same memory.
template <typename Vendor, typename T>
void scale_matrix_device(const double* factor, const T* source, T* target, int64_t count,
                         Stream& stream);
/// Replaces `square`, the product gram · gram, by a I + b gram + c square, for matrices [n, n].
template <typename Vendor, typename T>
void newton_schulz_polynomial_device(const T* gram, T* square, int64_t n, Stream& stream);

/// A matrix [rows, columns], and the memory in which muon_measures_device() measures it.
template <typename T>
struct MeasuredMatrix {
  const T* values;
  int64_t rows;
  int64_t columns;
  double factor;
  float* row_values;     // [rows], scratch
  float* column_values;  // [columns], scratch
  float* squares;        // [rows], scratch
  double* sums;          // [4], to which the matrix adds
  bool is_first;         // true for the first matrix, which sets the sums
};
/// Adds the matrix's measures to `sums`, in the order of MuonMeasures (muon_measures.h).
template <typename Vendor, typename T>
void muon_measures_device(const MeasuredMatrix<T>& matrix, Stream& stream);

}  // namespace tessera
