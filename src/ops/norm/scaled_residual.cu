#include "ops/norm/norm_team.h"
#include "ops/norm/scaled_residual_kernels.h"

namespace tessera {
namespace {

/// A team is a whole block. More than 2 packs per thread would take too many registers for sums.
using ScaledTeam = Team<true, 2>;

/// Returns (x + bias) ⊙ scale for pack p of a row.
template <int pack_size, typename T>
__device__ Pack<float, pack_size> scaled_pack(const Pack<T, pack_size>& x,
                                         const ScaleAndBias<float>& scaling, int p) {
  const auto bias = load_pack<pack_size>(scaling.bias, p);
  const auto scale = load_pack<pack_size>(scaling.scale, p);
  Pack<float, pack_size> result;
  for (int i = 0; i < pack_size; ++i) {
    result.values[i] = (static_cast<float>(x.values[i]) + bias.values[i]) * scale.values[i];
  }
  return result;
}

/// Scales and normalises one row per block.
template <typename T, int pack_size, bool fits>
__global__ void __launch_bounds__(kMostRowThreads) scaled_residual_rows(ScaledForward<T> scaled) {
  using Team = ScaledTeam;
  const int packs = static_cast<int>(scaled.width / pack_size);
  const int64_t row = blockIdx.x;
  const int64_t start = row * scaled.width;
  HeldPacks<Team, float, pack_size> sums;
  float squares = 0;
  for_each_cut<Team, fits>(packs, [&](int cut) {
    if (scaled.x == nullptr) {
      sums.load(scaled.sum + start, cut, packs);
    } else {
      for_held<Team>(cut, packs, [&](int held, int p) {
        sums.packs[held] =
            scaled_pack(load_pack<pack_size>(scaled.x + start, p), scaled.x_scaling, p);
        if (scaled.stream != nullptr) {
          const auto added =
              scaled_pack(load_pack<pack_size>(scaled.stream + start, p), scaled.stream_scaling, p);
          for (int i = 0; i < pack_size; ++i) sums.packs[held].values[i] += added.values[i];
        }
        store_pack(scaled.sum + start, p, sums.packs[held]);
      });
    }
    for_held<Team>(cut, packs, [&](int held, int) {
      for (const float value : sums.packs[held].values) squares += value * value;
    });
  });
  const float mean = Team::sum(squares) / static_cast<float>(scaled.width);
  const float inverse = 1.0f / sqrtf(mean + static_cast<float>(scaled.epsilon));
  if (Team::member() == 0) scaled.inverse[row] = inverse;
  for_each_cut<Team, fits>(packs, [&](int cut) {
    if constexpr (!fits) sums.load(scaled.sum + start, cut, packs);
    for_held<Team>(cut, packs, [&](int held, int p) {
      const auto weight = load_pack<pack_size>(scaled.weight, p);
      Pack<T, pack_size> results;
      for (int i = 0; i < pack_size; ++i) {
        results.values[i] = round_to<T>(sums.packs[held].values[i] * inverse * weight.values[i]);
      }
      store_pack(scaled.output + start, p, results);
    });
  });
}

/// The column sums of a part: in registers if a row fits, otherwise in the part's memory, where
/// each column belongs to one thread.
template <int pack_size, bool fits>
struct PartSums {
  Pack<float, pack_size> sums[fits ? kScaledSums : 1][fits ? ScaledTeam::kHeld : 1] = {};

  __device__ void add(float* part, int packs, int sum, int held, int p,
                      const Pack<float, pack_size>& values) {
    if constexpr (fits) {
      for (int i = 0; i < pack_size; ++i) sums[sum][held].values[i] += values.values[i];
    } else {
      float* const row = part + static_cast<int64_t>(sum) * packs * pack_size;
      auto total = load_pack<pack_size>(row, p);
      for (int i = 0; i < pack_size; ++i) total.values[i] += values.values[i];
      store_pack(row, p, total);
    }
  }
};

/// Computes the gradients (ScaledBackward) of the rows of one part per block, and the part's column
/// sums. For each row it first takes mean(g n), then writes the gradients of x and the stream.
template <typename T, int pack_size, bool fits>
__global__ void __launch_bounds__(kMostRowThreads)
    scaled_residual_gradient_part(ScaledBackward<T> scaled) {
  using Team = ScaledTeam;
  using Packed = Pack<float, pack_size>;
  const int packs = static_cast<int>(scaled.width / pack_size);
  const int64_t width = scaled.width;
  float* const part = scaled.parts + blockIdx.x * kScaledSums * width;
  PartSums<pack_size, fits> sums;
  if constexpr (!fits) {
    for_each_cut<Team, fits>(packs, [&](int cut) {
      for_held<Team>(cut, packs, [&](int, int p) {
        for (int sum = 0; sum < kScaledSums; ++sum) store_pack(part + sum * width, p, Packed{});
      });
    });
  }
  HeldPacks<Team, float, pack_size> stream_sum;
  HeldPacks<Team, T, pack_size> output_gradient;
  for (int64_t row = blockIdx.x; row < scaled.rows; row += scaled.part_count) {
    const int64_t start = row * width;
    const float inverse = scaled.inverse[row];
    const auto load = [&](int cut) {
      stream_sum.load(scaled.sum + start, cut, packs);
      output_gradient.load(scaled.output_gradient + start, cut, packs);
    };
    float product_sum = 0;
    for_each_cut<Team, fits>(packs, [&](int cut) {
      load(cut);
      for_held<Team>(cut, packs, [&](int held, int p) {
        const auto weight = load_pack<pack_size>(scaled.weight, p);
        Packed products;
        for (int i = 0; i < pack_size; ++i) {
          products.values[i] = static_cast<float>(output_gradient.packs[held].values[i]) *
                               stream_sum.packs[held].values[i] * inverse;
          product_sum += products.values[i] * weight.values[i];
        }
        sums.add(part, packs, sum_of_weight_products, held, p, products);
      });
    });
    const float product_mean = Team::sum(product_sum) / static_cast<float>(width);
    for_each_cut<Team, fits>(packs, [&](int cut) {
      if constexpr (!fits) load(cut);
      for_held<Team>(cut, packs, [&](int held, int p) {
        const auto weight = load_pack<pack_size>(scaled.weight, p);
        Packed sum_gradient{};
        if (scaled.sum_gradient != nullptr) {
          sum_gradient = load_pack<pack_size>(scaled.sum_gradient + start, p);
        }
        for (int i = 0; i < pack_size; ++i) {
          const float gradient =
              static_cast<float>(output_gradient.packs[held].values[i]) * weight.values[i];
          sum_gradient.values[i] +=
              inverse * (gradient - stream_sum.packs[held].values[i] * inverse * product_mean);
        }
        sums.add(part, packs, sum_of_d, held, p, sum_gradient);
        const auto x = load_pack<pack_size>(scaled.x + start, p);
        const auto x_scale = load_pack<pack_size>(scaled.x_scaling.scale, p);
        Packed products;
        Pack<T, pack_size> x_gradient;
        for (int i = 0; i < pack_size; ++i) {
          products.values[i] = sum_gradient.values[i] * static_cast<float>(x.values[i]);
          x_gradient.values[i] = round_to<T>(sum_gradient.values[i] * x_scale.values[i]);
        }
        sums.add(part, packs, sum_of_d_x, held, p, products);
        store_pack(scaled.x_gradient + start, p, x_gradient);
        if (scaled.stream == nullptr) return;
        const auto stream = load_pack<pack_size>(scaled.stream + start, p);
        const auto stream_scale = load_pack<pack_size>(scaled.stream_scaling.scale, p);
        Packed stream_gradient;
        for (int i = 0; i < pack_size; ++i) {
          products.values[i] = sum_gradient.values[i] * stream.values[i];
          stream_gradient.values[i] = sum_gradient.values[i] * stream_scale.values[i];
        }
        sums.add(part, packs, sum_of_d_stream, held, p, products);
        store_pack(scaled.stream_gradient + start, p, stream_gradient);
      });
    });
  }
  if constexpr (fits) {
    for_held<Team>(0, packs, [&](int held, int p) {
      for (int sum = 0; sum < kScaledSums; ++sum) {
        store_pack(part + sum * width, p, sums.sums[sum][held]);
      }
    });
  }
}

/// Adds up the parts in a fixed order. A block has kLanes columns; each warp adds some parts.
template <typename T>
__global__ void __launch_bounds__(kMostThreads) scaled_residual_vectors(ScaledBackward<T> scaled) {
  __shared__ float sums[kMostThreads / kLanes][kScaledSums][kLanes];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kLanes + this_lane();
  float totals[kScaledSums] = {};
  if (column < scaled.width) {
    for (int64_t part = this_warp(); part < scaled.part_count; part += block_warps()) {
      const float* const part_sums = scaled.parts + part * kScaledSums * scaled.width + column;
      for (int sum = 0; sum < kScaledSums; ++sum) totals[sum] += part_sums[sum * scaled.width];
    }
  }
  for (int sum = 0; sum < kScaledSums; ++sum) sums[this_warp()][sum][this_lane()] = totals[sum];
  __syncthreads();
  if (this_warp() != 0 || column >= scaled.width) return;
  for (int warp = 1; warp < block_warps(); ++warp) {
    for (int sum = 0; sum < kScaledSums; ++sum) totals[sum] += sums[warp][sum][this_lane()];
  }
  put_vector_gradients(scaled, column, totals);
}

/// Calls body(pack_size, fits, threads of a block), the first two as compile-time constants. `fits`
/// is true if a row fits into registers. A pack has the same number of elements of each type.
template <typename Body>
void for_scaled_width(int64_t width, Body&& body) {
  with_pack_size<kPackSize<float>>(width, [&](auto pack_size) {
    const int64_t held = int64_t{pack_size} * ScaledTeam::kHeld;  // elements that a thread holds
    const int64_t threads = round_up((width + held - 1) / held, int64_t{kLanes});
    if constexpr (pack_size > 1) {
      if (threads <= kMostRowThreads) {
        return body(pack_size, std::true_type{}, static_cast<int>(threads));
      }
    }
    body(pack_size, std::false_type{},
         static_cast<int>(std::min<int64_t>(threads, kMostRowThreads)));
  });
}

}  // namespace

template <typename Vendor, typename T>
void scaled_residual_device(const ScaledForward<T>& scaled, Stream& stream) {
  for_scaled_width(scaled.width, [&](auto pack_size, auto fits, int threads) {
    launch(scaled_residual_rows<T, pack_size, fits>, {.blocks = scaled.rows, .threads = threads},
           stream, scaled);
  });
}

template <typename Vendor, typename T>
void scaled_residual_gradient_device(const ScaledBackward<T>& scaled, Stream& stream) {
  for_scaled_width(scaled.width, [&](auto pack_size, auto fits, int threads) {
    launch(scaled_residual_gradient_part<T, pack_size, fits>,
           {.blocks = scaled.part_count, .threads = threads}, stream, scaled);
  });
  const int64_t warps = std::clamp<int64_t>(scaled.part_count, 1, kMostThreads / kLanes);
  launch(scaled_residual_vectors<T>,
         {.blocks = (scaled.width + kLanes - 1) / kLanes,
          .threads = static_cast<int>(warps * kLanes)},
         stream, scaled);
}

template void scaled_residual_device<ThisVendor>(const ScaledForward<float>&, Stream&);
template void scaled_residual_device<ThisVendor>(const ScaledForward<BFloat16>&, Stream&);
template void scaled_residual_gradient_device<ThisVendor>(const ScaledBackward<float>&, Stream&);
template void scaled_residual_gradient_device<ThisVendor>(const ScaledBackward<BFloat16>&,
                                                          Stream&);

}  // namespace tessera
