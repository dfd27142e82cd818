#include <algorithm>

#include "ops/cca/mean_skip_kernels.h"
#include "ops/weight_parts_device.h"

namespace tessera {
namespace {

constexpr int kSkipWarps = 4;  // of a block, at most
/// The elements of a pack. A head of 128 channels then has one pack for each lane.
constexpr int kHeadPack = kLanes == 32 ? 4 : 2;

/// A row [head_dim] of a head in f32, held by a warp. A pack is `pack_size` elements that are moved
/// in one access. Lane i has the packs i, i + kLanes and so on, at most `lane_packs` of them.
template <int lane_packs, int pack_size>
struct HeadRow {
  Pack<float, pack_size> packs[lane_packs] = {};

  /// Calls body(i, p) for the packs of this lane: pack p of the row is number i of them.
  template <typename Body>
  __device__ static void for_own_packs(int64_t head_dim, Body&& body) {
    for (int i = 0; i < lane_packs; ++i) {
      const int p = this_lane() + i * kLanes;
      if (p * pack_size < head_dim) body(i, p);
    }
  }
  template <typename T>
  __device__ HeadRow(const T* row, int64_t head_dim) {
    for_own_packs(head_dim, [&](int i, int p) {
      const Pack<T, pack_size> pack = load_pack<pack_size>(row, p);
      for (int k = 0; k < pack_size; ++k) packs[i].values[k] = static_cast<float>(pack.values[k]);
    });
  }
  HeadRow() = default;

  template <typename T>
  __device__ void store(T* row, int64_t head_dim) const {
    for_own_packs(head_dim, [&](int i, int p) {
      Pack<T, pack_size> pack;
      for (int k = 0; k < pack_size; ++k) pack.values[k] = round_to<T>(packs[i].values[k]);
      store_pack(row, p, pack);
    });
  }
  /// Returns the row in which element k of this lane's pack number i is value(i, k).
  template <typename Value>
  __device__ static HeadRow from_values(Value&& value) {
    HeadRow row;
    for (int i = 0; i < lane_packs; ++i) {
      for (int k = 0; k < pack_size; ++k) row.packs[i].values[k] = value(i, k);
    }
    return row;
  }
  __device__ float at(int i, int k) const { return packs[i].values[k]; }
  __device__ float& at(int i, int k) { return packs[i].values[k]; }

  /// Returns the dot product with another row, to all lanes. Packs after the row's end are zeros.
  __device__ float dot(const HeadRow& second) const {
    float total = 0;
    for (int i = 0; i < lane_packs; ++i) {
      for (int k = 0; k < pack_size; ++k) total += at(i, k) * second.at(i, k);
    }
    return warp_sum(total);
  }
};

/// The sums s = convolved + bias + mean before the norm, for one token and one group of heads (see
/// mean_skip_plain.h). A group is the query heads that share a key head, and that key head.
template <typename T, int lane_packs, int pack_size>
struct SkipSums {
  using Row = HeadRow<lane_packs, pack_size>;
  const MeanSkipOperands<T>& operands;
  int64_t group;
  int64_t key_row;    // offset of the key head's row
  int64_t query_row;  // offset of the row of the group's first query head
  Row projected_key;

  __device__ SkipSums(const MeanSkipOperands<T>& arguments, int64_t token, int64_t key_head)
      : operands(arguments),
        group(key_head),
        key_row((token * arguments.groups + key_head) * arguments.head_dim),
        query_row(key_row * arguments.heads),
        projected_key(arguments.projected_key + key_row, arguments.head_dim) {}

  __device__ Row query(int64_t head) const {
    const int64_t row = query_row + head * operands.head_dim;
    const Row projected(operands.projected_query + row, operands.head_dim);
    const Row convolved(operands.convolved_query + row, operands.head_dim);
    const Row bias(operands.query_bias + (group * operands.heads + head) * operands.head_dim,
                   operands.head_dim);
    return Row::from_values([&](int i, int k) {
      return convolved.at(i, k) + bias.at(i, k) +
             0.5f * (projected.at(i, k) + projected_key.at(i, k));
    });
  }
  __device__ Row key() const {
    Row total;
    for (int64_t head = 0; head < operands.heads; ++head) {
      const Row projected(operands.projected_query + query_row + head * operands.head_dim,
                          operands.head_dim);
      total = Row::from_values([&](int i, int k) { return total.at(i, k) + projected.at(i, k); });
    }
    const Row convolved(operands.convolved_key + key_row, operands.head_dim);
    const Row bias(operands.key_bias + group * operands.head_dim, operands.head_dim);
    const float share = 1.0f / static_cast<float>(operands.heads);
    return Row::from_values([&](int i, int k) {
      return convolved.at(i, k) + bias.at(i, k) +
             0.5f * (total.at(i, k) * share + projected_key.at(i, k));
    });
  }
  __device__ float inverse_norm(const Row& sum) const {
    return 1.0f / sqrtf(sum.dot(sum) + static_cast<float>(operands.epsilon));
  }
  __device__ float root() const { return sqrtf(static_cast<float>(operands.head_dim)); }
};

/// Writes queries and keys (formulas: mean_skip_plain()), with a warp for each token and group.
template <typename T, int lane_packs, int pack_size>
__global__ void __launch_bounds__(kSkipWarps* kLanes) skip_heads(MeanSkipForward<T> skip) {
  using Row = HeadRow<lane_packs, pack_size>;
  const MeanSkipOperands<T>& operands = skip.operands;
  const int64_t item = warp_of_grid();
  if (item >= operands.tokens * operands.groups) return;  // a whole warp
  const SkipSums<T, lane_packs, pack_size> sums(operands, item / operands.groups,
                                           item % operands.groups);
  const auto write = [&](const Row& sum, float scale, T* to) {
    const float factor = scale * sums.inverse_norm(sum);
    const Row scaled = Row::from_values([&](int i, int k) { return factor * sum.at(i, k); });
    scaled.store(to, operands.head_dim);
  };
  write(sums.key(), operands.temperature[sums.group] * sums.root(), skip.key + sums.key_row);
  for (int64_t head = 0; head < operands.heads; ++head) {
    write(sums.query(head), sums.root(), skip.query + sums.query_row + head * operands.head_dim);
  }
}

/// The gradients of a sum s and of `scale`, the factor on the normalised sum (see
/// NormGradientFactors in mean_skip_plain.h).
template <typename Row>
struct SumGradient {
  Row sum_gradient;
  float scale_gradient;
};

template <typename T, int lane_packs, int pack_size>
__device__ SumGradient<HeadRow<lane_packs, pack_size>> gradient_of_sum(
    const SkipSums<T, lane_packs, pack_size>& sums, const HeadRow<lane_packs, pack_size>& sum,
    const T* output_gradient, float scale) {
  using Row = HeadRow<lane_packs, pack_size>;
  const Row gradient(output_gradient, sums.operands.head_dim);
  const float inverse = sums.inverse_norm(sum);
  const float products = sum.dot(gradient);
  const float factor = scale * sums.root() * inverse;
  const float projection = inverse * inverse * products;
  return {Row::from_values([&](int i, int k) {
            return factor * (gradient.at(i, k) - sum.at(i, k) * projection);
          }),
          sums.root() * inverse * products};
}

/// Adds a row to sums of the warp in shared memory. Each lane adds its own packs.
template <int lane_packs, int pack_size>
__device__ void add_to_sums(const HeadRow<lane_packs, pack_size>& row, float* sums,
                            int64_t head_dim) {
  HeadRow<lane_packs, pack_size>::for_own_packs(head_dim, [&](int i, int p) {
    for (int k = 0; k < pack_size; ++k) sums[p * pack_size + k] += row.at(i, k);
  });
}

/// Writes the gradients (formulas: mean_skip_gradient_plain()), with a block for each part of the
/// tokens (grid x) and each group (grid y). The tokens of the part are divided among the block's
/// warps. A warp adds up, in shared memory, the gradients of the group's biases and of its
/// temperature. Then the block adds up the warps' sums, in order, and writes them to its part. With
/// the 1 in __launch_bounds__, one block may take all registers of a multiprocessor.
template <typename T, int lane_packs, int pack_size>
__global__ void __launch_bounds__(kSkipWarps* kLanes, 1)
    skip_gradient_heads(MeanSkipBackward<T> skip, int64_t parts) {
  using Row = HeadRow<lane_packs, pack_size>;
  const MeanSkipOperands<T>& operands = skip.operands;
  const int64_t group = blockIdx.y, part = blockIdx.x;
  const int64_t head_dim = operands.head_dim, width = (operands.heads + 1) * head_dim + 1;
  float* const warp_sums = dynamic_shared<float>();  // [warps, width]
  float* const warp_part = warp_sums + this_warp() * width;
  for (int64_t i = this_lane(); i < width; i += kLanes) warp_part[i] = 0;
  wait_for_warp();

  float temperature_gradient = 0;
  const int64_t end = operands.tokens * (part + 1) / parts;
  for (int64_t token = operands.tokens * part / parts + this_warp(); token < end;
       token += block_warps()) {
    const SkipSums<T, lane_packs, pack_size> sums(operands, token, group);
    const auto [key_sum_gradient, scale_gradient] = gradient_of_sum(
        sums, sums.key(), skip.key_gradient + sums.key_row, operands.temperature[group]);
    temperature_gradient += scale_gradient;
    add_to_sums(key_sum_gradient, warp_part + operands.heads * head_dim, head_dim);
    key_sum_gradient.store(skip.convolved_key_gradient + sums.key_row, head_dim);
    Row total;
    const float share = 0.5f / static_cast<float>(operands.heads);
    for (int64_t head = 0; head < operands.heads; ++head) {
      const int64_t row = sums.query_row + head * head_dim;
      const Row sum_gradient =
          gradient_of_sum(sums, sums.query(head), skip.query_gradient + row, 1.0f).sum_gradient;
      add_to_sums(sum_gradient, warp_part + head * head_dim, head_dim);
      sum_gradient.store(skip.convolved_query_gradient + row, head_dim);
      Row projected_gradient;
      for (int i = 0; i < lane_packs; ++i) {
        for (int k = 0; k < pack_size; ++k) {
          total.at(i, k) += sum_gradient.at(i, k);
          projected_gradient.at(i, k) =
              0.5f * sum_gradient.at(i, k) + share * key_sum_gradient.at(i, k);
        }
      }
      projected_gradient.store(skip.projected_query_gradient + row, head_dim);
    }
    for (int i = 0; i < lane_packs; ++i) {
      for (int k = 0; k < pack_size; ++k) {
        total.at(i, k) = 0.5f * (total.at(i, k) + key_sum_gradient.at(i, k));
      }
    }
    total.store(skip.projected_key_gradient + sums.key_row, head_dim);
  }
  if (this_lane() == 0) warp_part[width - 1] = temperature_gradient;
  __syncthreads();

  float* const result = skip.parts + part * skip.part_width();
  const int64_t query_width = operands.heads * head_dim;
  for (int64_t column = threadIdx.x; column < width; column += blockDim.x) {
    float sum = 0;
    for (int warp = 0; warp < block_warps(); ++warp) sum += warp_sums[warp * width + column];
    if (column < query_width) {
      result[group * query_width + column] = sum;
    } else if (column < width - 1) {
      result[operands.query_channels() + group * head_dim + column - query_width] = sum;
    } else {
      result[operands.query_channels() + operands.key_channels() + group] = sum;
    }
  }
}

/// Calls body(lane_packs, pack_size) with the packs of a lane and the elements of a pack as
/// compile-time constants.
template <typename Body>
void with_head_packs(int64_t head_dim, Body&& body) {
  constexpr int kMost = static_cast<int>(kMostSkipHeadDim);
  if (head_dim % kHeadPack != 0) {
    body(std::integral_constant<int, kMost / kLanes>{}, std::integral_constant<int, 1>{});
  } else if (head_dim <= kHeadPack * kLanes) {
    body(std::integral_constant<int, 1>{}, std::integral_constant<int, kHeadPack>{});
  } else {
    body(std::integral_constant<int, kMost / (kHeadPack * kLanes)>{},
         std::integral_constant<int, kHeadPack>{});
  }
}

}  // namespace

template <typename Vendor, typename T>
void mean_skip_device(const MeanSkipForward<T>& skip, Stream& stream) {
  const int64_t items = skip.operands.tokens * skip.operands.groups;
  with_head_packs(skip.operands.head_dim, [&](auto lane_packs, auto pack_size) {
    launch(skip_heads<T, lane_packs, pack_size>,
           {.blocks = (items + kSkipWarps - 1) / kSkipWarps, .threads = kSkipWarps * kLanes},
           stream, skip);
  });
}

template <typename Vendor, typename T>
void mean_skip_gradient_device(const MeanSkipBackward<T>& skip, int64_t parts, Stream& stream) {
  const MeanSkipOperands<T>& operands = skip.operands;
  const int64_t width = (operands.heads + 1) * operands.head_dim;
  const int64_t warps = std::min<int64_t>(kSkipWarps, (kMostSkipChannels + 1) / (width + 1));
  with_head_packs(operands.head_dim, [&](auto lane_packs, auto pack_size) {
    launch(skip_gradient_heads<T, lane_packs, pack_size>,
           {.blocks = parts,
            .threads = static_cast<int>(warps * kLanes),
            .blocks_y = operands.groups,
            .shared_bytes = static_cast<int>(warps * (width + 1) * sizeof(float))},
           stream, skip, parts);
  });
  add_weight_parts_device({.count = parts,
                           .width = skip.part_width(),
                           .parts = skip.parts,
                           .gradients = {skip.query_bias_gradient, skip.key_bias_gradient,
                                  skip.temperature_gradient},
                           .sizes = {operands.query_channels(), operands.key_channels(),
                                     operands.groups}},
                          stream);
}

template void mean_skip_device<ThisVendor>(const MeanSkipForward<float>&, Stream&);
template void mean_skip_device<ThisVendor>(const MeanSkipForward<BFloat16>&, Stream&);
template void mean_skip_gradient_device<ThisVendor>(const MeanSkipBackward<float>&, int64_t,
                                                    Stream&);
template void mean_skip_gradient_device<ThisVendor>(const MeanSkipBackward<BFloat16>&, int64_t,
                                                    Stream&);

}  // namespace tessera
