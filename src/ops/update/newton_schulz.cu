#include "device/packs.h"
#include "ops/update/device_piece.h"
#include "ops/update/muon_kernels.h"

namespace tessera {
namespace {

/// Writes partial[block] = Σ x² over the block's piece of a matrix.
template <typename T>
__global__ void squares_of_matrices(DeviceTable<MatrixNormRow<T>> matrices, double* partial) {
  const Piece<MatrixNormRow<T>> piece = piece_of_block(matrices);
  const T* const values = piece.row.values + piece.begin;
  double total = 0;
  for (int i = static_cast<int>(threadIdx.x); i < piece.count; i += kPieceThreads) {
    const double value = static_cast<float>(values[i]);
    total += value * value;
  }
  total = block_sum(total);
  if (threadIdx.x == 0) partial[blockIdx.x] = total;
}

/// Writes factors[m] = 1 / √(Σ partial of matrix m), or the sum if it is 0 or NaN, per block.
template <typename T>
__global__ void inverse_norms(DeviceTable<MatrixNormRow<T>> matrices, const double* partial,
                              double* factors) {
  const auto matrix = static_cast<int64_t>(blockIdx.x);
  const int64_t begin = matrices.rows[matrix].first_block;
  const int64_t end =
      matrix + 1 < matrices.count ? matrices.rows[matrix + 1].first_block : matrices.blocks;
  double total = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) total += partial[i];
  total = block_sum(total);
  if (threadIdx.x == 0) factors[matrix] = total > 0 ? 1.0 / std::sqrt(total) : total;
}

/// Writes target[i] = factor · source[i].
template <typename T, int pack_size>
__global__ void scale_matrix(const double* scale, const T* source, T* target, int64_t count) {
  const double factor = *scale;
  for_my_elements<pack_size>(count, [&](int64_t first, auto size) {
    auto values = load_pack<size>(source + first, 0);
    for (int i = 0; i < size; ++i) {
      const double value = static_cast<float>(values.values[i]);
      values.values[i] = round_to<T>(static_cast<float>(factor * value));
    }
    store_pack(target + first, 0, values);
  });
}

/// Writes square = a I + b gram + c square. Elements whose index n + 1 divides are on the diagonal.
template <typename T>
__global__ void newton_schulz_polynomial(const T* gram, T* square, int64_t n) {
  for_my_elements<kPackSize<T>>(n * n, [&](int64_t first, auto size) {
    const auto linear = load_pack<size>(gram + first, 0);
    auto values = load_pack<size>(square + first, 0);
    for (int i = 0; i < size; ++i) {
      const float a = (first + i) % (n + 1) == 0 ? static_cast<float>(kNewtonSchulzA) : 0.0f;
      values.values[i] = round_to<T>(
          a + static_cast<float>(kNewtonSchulzB) * static_cast<float>(linear.values[i]) +
          static_cast<float>(kNewtonSchulzC) * static_cast<float>(values.values[i]));
    }
    store_pack(square + first, 0, values);
  });
}

}  // namespace

template <typename Vendor, typename T>
void inverse_norms_device(const DeviceTable<MatrixNormRow<T>>& matrices, double* partial,
                          double* factors, Stream& stream) {
  launch(squares_of_matrices<T>, grid_of_pieces(matrices), stream, matrices, partial);
  launch(inverse_norms<T>, {.blocks = matrices.count, .threads = kPieceThreads}, stream, matrices,
         partial, factors);
}

template <typename Vendor, typename T>
void scale_matrix_device(const double* factor, const T* source, T* target, int64_t count,
                         Stream& stream) {
  // Matrices are consecutive in memory: packs are aligned if a matrix is a whole number of packs.
  with_pack_size<kPackSize<T>>(count, [&](auto size) {
    launch(scale_matrix<T, size>, grid_of_elements<size>(count), stream, factor, source,
           target, count);
  });
}

template <typename Vendor, typename T>
void newton_schulz_polynomial_device(const T* gram, T* square, int64_t n, Stream& stream) {
  launch(newton_schulz_polynomial<T>, grid_of_elements<kPackSize<T>>(n * n), stream, gram, square,
         n);
}

template void inverse_norms_device<ThisVendor, float>(const DeviceTable<MatrixNormRow<float>>&,
                                                      double*, double*, Stream&);
template void inverse_norms_device<ThisVendor, BFloat16>(
    const DeviceTable<MatrixNormRow<BFloat16>>&, double*, double*, Stream&);
template void scale_matrix_device<ThisVendor, float>(const double*, const float*, float*, int64_t,
                                                     Stream&);
template void scale_matrix_device<ThisVendor, BFloat16>(const double*, const BFloat16*, BFloat16*,
                                                        int64_t, Stream&);
template void newton_schulz_polynomial_device<ThisVendor, float>(const float*, float*, int64_t,
                                                                 Stream&);
template void newton_schulz_polynomial_device<ThisVendor, BFloat16>(const BFloat16*, BFloat16*,
                                                                    int64_t, Stream&);

}  // namespace tessera
