#include "ops/update/device_piece.h"

namespace tessera {
namespace {

/// Writes target[i] = source[i], with a thread for each element, unless the scale is NaN.
__global__ void copy_if_finite(const double* scale, int64_t count, const float* source,
                               float* target) {
  for_my_elements<1>(count, [&](int64_t i, auto /*size*/) {
    if (!std::isnan(*scale)) target[i] = source[i];
  });
}

/// Writes weight[i] = master[i], rounded to bf16.
__global__ void round_pieces(DeviceTable<RoundRow> units) {
  const Piece<RoundRow> piece = piece_of_block(units);
  const float* const master = piece.row.master + piece.begin;
  BFloat16* const weight = piece.row.weight + piece.begin;
  for_elements_of_piece(master, piece.count, [&](int first, auto size) {
    const auto masters = load_pack<size>(master + first, 0);
    Pack<BFloat16, size> weights;
    for (int i = 0; i < size; ++i) weights.values[i] = round_to<BFloat16>(masters.values[i]);
    store_pack(weight + first, 0, weights);
  });
}

/// Writes zeros, in packs of bytes and then the few bytes after the last pack.
__global__ void zero_pieces(DeviceTable<ZeroRow> values) {
  const Piece<ZeroRow> piece = piece_of_block(values);
  std::byte* const start = piece.row.start + piece.begin;
  constexpr int kPackWords = kPackSize<uint32_t>, kPackBytes = kPackWords * sizeof(uint32_t);
  const auto thread = static_cast<int>(threadIdx.x);
  const int packs = piece.count / kPackBytes;
  for (int pack = thread; pack < packs; pack += kPieceThreads) {
    store_pack(reinterpret_cast<uint32_t*>(start), pack, Pack<uint32_t, kPackWords>{});
  }
  if (thread < piece.count % kPackBytes) start[packs * kPackBytes + thread] = std::byte{0};
}

/// Adds all values to one sum, in one block.
template <typename T>
__global__ void add_all_to_sum(double* sum, const T* value, int64_t count) {
  double total = 0;
  for (int64_t i = threadIdx.x; i < count; i += kPieceThreads) {
    total += static_cast<double>(value[i]);
  }
  total = block_sum(total);
  if (threadIdx.x == 0) *sum += total;
}

/// Adds value[i] to sums[i], with a thread for each element.
template <typename T>
__global__ void add_each_to_sum(double* sums, const T* value, int64_t count) {
  for_my_elements<1>(
      count, [&](int64_t i, auto /*size*/) { sums[i] += static_cast<double>(value[i]); });
}

}  // namespace

template <typename Vendor>
void copy_if_finite_device(const double* scale, int64_t count, const float* source, float* target,
                           Stream& stream) {
  launch(copy_if_finite, grid_of_elements<1>(count), stream, scale, count, source, target);
}

template <typename Vendor>
void round_device(const DeviceTable<RoundRow>& units, Stream& stream) {
  launch(round_pieces, grid_of_pieces(units), stream, units);
}

template <typename Vendor>
void zero_device(const DeviceTable<ZeroRow>& values, Stream& stream) {
  launch(zero_pieces, grid_of_pieces(values), stream, values);
}

template <typename Vendor, typename T>
void running_sum_device(double* sum, int64_t sums, const T* value, int64_t count, Stream& stream) {
  if (sums == 1) {
    launch(add_all_to_sum<T>, {.threads = kPieceThreads}, stream, sum, value, count);
  } else {
    launch(add_each_to_sum<T>, grid_of_elements<1>(count), stream, sum, value, count);
  }
}

template void copy_if_finite_device<ThisVendor>(const double*, int64_t, const float*, float*,
                                                Stream&);
template void round_device<ThisVendor>(const DeviceTable<RoundRow>&, Stream&);
template void zero_device<ThisVendor>(const DeviceTable<ZeroRow>&, Stream&);
template void running_sum_device<ThisVendor>(double*, int64_t, const int32_t*, int64_t, Stream&);
template void running_sum_device<ThisVendor>(double*, int64_t, const float*, int64_t, Stream&);
template void running_sum_device<ThisVendor>(double*, int64_t, const double*, int64_t, Stream&);

}  // namespace tessera
