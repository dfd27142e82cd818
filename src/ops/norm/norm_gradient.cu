#include "ops/norm/norm_team.h"
#include "ops/weight_parts_device.h"

namespace tessera {
namespace {

/// Writes part [width] of the weight's gradient: the block's `sums`, added in the order of warps.
template <int pack_size, typename Team>
__device__ void add_warps(const Pack<float, pack_size> (&sums)[Team::kHeld], int packs,
                          float* part) {
  float* const warp_sums = dynamic_shared<float>();  // [warps, width]
  const int width = packs * pack_size;
  for_held<Team>(0, packs, [&](int held, int p) {
    float* const target = warp_sums + this_warp() * width + p * pack_size;
    for (int i = 0; i < pack_size; ++i) target[i] = sums[held].values[i];
  });
  __syncthreads();
  for (int column = static_cast<int>(threadIdx.x); column < width;
       column += static_cast<int>(blockDim.x)) {
    float total = 0;
    for (int warp = 0; warp < block_warps(); ++warp) total += warp_sums[warp * width + column];
    part[column] = total;
  }
}

/// Computes the gradients of rows (NormBackward). Team i of the grid's n teams handles the rows i,
/// i + n, i + 2 n and so on. For each row it first computes the two means of the formula, and adds
/// output_gradient · x̂ to the block's part of the weight's gradient. Then it writes x's gradient.
///
/// The part is added up in registers or, if a row does not fit into them, in the part's memory. In
/// that case a team is a whole block.
template <typename T, int pack_size, typename Team, bool fits, bool rotates>
__global__ void __launch_bounds__(kMostRowThreads)
    norm_gradient_rows(NormBackward<T> norm, NormRotation<T> rotation) {
  static_assert(fits || (Team::kWholeBlock && !rotates));
  const int packs = static_cast<int>(norm.width / pack_size);
  const auto width = static_cast<float>(norm.width);
  const bool weighted = norm.weight != nullptr;
  float* const part =
      weighted ? norm.partial + static_cast<int64_t>(blockIdx.x) * norm.width : nullptr;
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) * Team::count() + Team::index();
  const int64_t stride = static_cast<int64_t>(gridDim.x) * Team::count();
  HeldPacks<Team, T, pack_size> x, output_gradient;
  Pack<float, pack_size> sums[Team::kHeld] = {};

  for (int64_t row = first_row; row < norm.rows; row += stride) {
    const int64_t start = row * norm.width;
    const float mean = norm.mean != nullptr ? norm.mean[row] : 0.0f;
    const float inverse = norm.inverse[row];
    const auto load = [&](int cut) {
      x.load(norm.x + start, cut, packs);
      output_gradient.load(norm.output_gradient + start, cut, packs);
      if constexpr (rotates) {
        const RowRotation row_rotation(rotation, start);
        for_held<Team>(cut, packs, [&](int held, int p) {
          const auto partner_pack = load_pack<pack_size>(
              norm.output_gradient + start, row_rotation.template partner<pack_size>(p));
          output_gradient.packs[held] =
              row_rotation.rotated(p, output_gradient.packs[held], partner_pack, -1.0f);
        });
      }
    };
    const auto normalised = [&](int held, int i) {
      return (static_cast<float>(x.packs[held].values[i]) - mean) * inverse;
    };
    const auto gradient_of = [&](int held, int i) {
      return static_cast<float>(output_gradient.packs[held].values[i]);
    };

    float gradient_total = 0, product_total = 0;
    for_each_cut<Team, fits>(packs, [&](int cut) {
      load(cut);
      for_held<Team>(cut, packs, [&](int held, int p) {
        const Pack<float, pack_size> weights = weights_of_pack<pack_size>(norm.weight, p);
        Pack<float, pack_size> products;
        for (int i = 0; i < pack_size; ++i) {
          products.values[i] = gradient_of(held, i) * normalised(held, i);
          gradient_total += gradient_of(held, i) * weights.values[i];
          product_total += products.values[i] * weights.values[i];
        }
        if constexpr (fits) {
          for (int i = 0; i < pack_size; ++i) sums[held].values[i] += products.values[i];
        } else if (weighted) {
          if (row != first_row) {
            const Pack<float, pack_size> before = load_pack<pack_size>(part, p);
            for (int i = 0; i < pack_size; ++i) products.values[i] += before.values[i];
          }
          store_pack(part, p, products);
        }
      });
    });
    if constexpr (rotates) Team::synchronize();  // x's gradient may overwrite the output's
    const float product_mean = Team::sum(product_total) / width;
    const float gradient_mean = norm.mean != nullptr ? Team::sum(gradient_total) / width : 0.0f;

    for_each_cut<Team, fits>(packs, [&](int cut) {
      if constexpr (!fits) load(cut);
      for_held<Team>(cut, packs, [&](int held, int p) {
        const Pack<float, pack_size> weights = weights_of_pack<pack_size>(norm.weight, p);
        Pack<T, pack_size> sum_gradient{};
        if (norm.sum_gradient != nullptr) {
          sum_gradient = load_pack<pack_size>(norm.sum_gradient + start, p);
        }
        Pack<T, pack_size> results;
        for (int i = 0; i < pack_size; ++i) {
          const float gradient = gradient_of(held, i) * weights.values[i];
          const float through_norm =
              inverse * (gradient - gradient_mean - normalised(held, i) * product_mean);
          results.values[i] =
              round_to<T>(through_norm + static_cast<float>(sum_gradient.values[i]));
        }
        store_pack(norm.x_gradient + start, p, results);
      });
    });
  }
  if constexpr (fits) {
    if (!weighted) return;
    if constexpr (Team::kWholeBlock) {
      for_held<Team>(0, packs, [&](int held, int p) { store_pack(part, p, sums[held]); });
    } else {
      add_warps<pack_size, Team>(sums, packs, part);
    }
  }
}

}  // namespace

template <typename Vendor, typename T>
void norm_gradient_device(const NormBackward<T>& arguments, const NormRotation<T>& rotation,
                          int64_t parts, Stream& stream) {
  NormBackward<T> norm = arguments;  // with another output_gradient, if that is rotated back first
  for_row_width<T>(norm.rows, norm.width, [&](auto pack_size, auto team, auto fits, Grid grid) {
    using Team = decltype(team);
    grid.blocks = parts;
    if (norm.weight != nullptr && !Team::kWholeBlock) {
      grid.shared_bytes = static_cast<int>(kTeamWarps * norm.width * sizeof(float));
    }
    if constexpr (fits) {
      if (rotation.table != nullptr && rotates_packs(rotation, pack_size)) {
        return launch(norm_gradient_rows<T, pack_size, Team, true, true>, grid, stream, norm,
                      rotation);
      }
    }
    if (rotation.table != nullptr) {
      rotary_device<Vendor>(rotation.arguments(true, norm.output_gradient, norm.x_gradient),
                            stream);
      norm.output_gradient = norm.x_gradient;
    }
    launch(norm_gradient_rows<T, pack_size, Team, fits, false>, grid, stream, norm, rotation);
  });
  if (norm.weight == nullptr) return;
  add_weight_parts_device({.count = parts,
                           .width = norm.width,
                           .parts = norm.partial,
                           .gradients = {norm.weight_gradient},
                           .sizes = {norm.width}},
                          stream);
}

template void norm_gradient_device<ThisVendor>(const NormBackward<float>&,
                                               const NormRotation<float>&, int64_t, Stream&);
template void norm_gradient_device<ThisVendor>(const NormBackward<BFloat16>&,
                                               const NormRotation<BFloat16>&, int64_t, Stream&);

}  // namespace tessera
