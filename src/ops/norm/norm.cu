#include <algorithm>
#include <type_traits>

#include "base/round_up.h"
#include "device/kernel.h"
#include "ops/norm/norm_kernels.h"

namespace tessera {
namespace {

/// A row is handled by a team: a warp where a row has no more packs than lanes, or the whole block.
template <bool whole_block>
struct Team {
  __device__ static int size() {
    return whole_block ? static_cast<int>(blockDim.x) : kLanes;
  }
  __device__ static int member() { return static_cast<int>(threadIdx.x) % size(); }
  /// The number of this team within the block, and how many there are.
  __device__ static int number() { return static_cast<int>(threadIdx.x) / size(); }
  __device__ static int count() { return static_cast<int>(blockDim.x) / size(); }
  __device__ static float sum(float value) {
    if constexpr (whole_block) return block_sum(value);
    return warp_sum(value);
  }
};

/// Calls body(p, i) for each pack p of a row that this thread handles, and within it.
template <typename Team, typename Body>
__device__ void for_each_pack(int packs, Body&& body) {
  for (int p = Team::member(); p < packs; p += Team::size()) body(p);
}

/// One team a row.
template <typename T, int size, bool whole_block>
__global__ void norm_rows(NormForward<T> norm) {
  using Rows = Team<whole_block>;
  const int packs = static_cast<int>(norm.width / size);
  const int64_t row = static_cast<int64_t>(blockIdx.x) * Rows::count() + Rows::number();
  const bool exists = row < norm.rows;  // a team without a row takes part in sums all the same
  const int64_t start = exists ? row * norm.width : 0;
  const int mine = exists ? packs : 0;
  const T* x = norm.x + start;

  float total = 0;
  for_each_pack<Rows>(mine, [&](int p) {
    Pack<T, size> pack = load_pack<size>(x, p);
    if (norm.residual != nullptr) {
      const Pack<T, size> added = load_pack<size>(norm.residual + start, p);
      for (int i = 0; i < size; ++i) {
        pack.values[i] = round_to<T>(static_cast<float>(pack.values[i]) +
                                     static_cast<float>(added.values[i]));
      }
      store_pack(norm.sum + start, p, pack);
    }
    for (int i = 0; i < size; ++i) {
      const auto value = static_cast<float>(pack.values[i]);
      total += norm.mean != nullptr ? value : value * value;
    }
  });
  if (norm.residual != nullptr) x = norm.sum + start;
  const auto width = static_cast<float>(norm.width);
  float mean = 0;
  float squares = Rows::sum(total);
  if (norm.mean != nullptr) {
    mean = squares / width;
    total = 0;
    for_each_pack<Rows>(mine, [&](int p) {
      const Pack<T, size> pack = load_pack<size>(x, p);
      for (int i = 0; i < size; ++i) {
        const float centred = static_cast<float>(pack.values[i]) - mean;
        total += centred * centred;
      }
    });
    squares = Rows::sum(total);
  }
  const float inverse = 1.0f / sqrtf(squares / width + static_cast<float>(norm.epsilon));
  if (exists && Rows::member() == 0) {
    norm.inverse[row] = inverse;
    if (norm.mean != nullptr) norm.mean[row] = mean;
  }
  for_each_pack<Rows>(mine, [&](int p) {
    Pack<T, size> pack = load_pack<size>(x, p);
    for (int i = 0; i < size; ++i) {
      const float weight = norm.weight != nullptr ? norm.weight[p * size + i] : 1.0f;
      pack.values[i] = round_to<T>((static_cast<float>(pack.values[i]) - mean) * inverse * weight);
    }
    store_pack(norm.output + start, p, pack);
  });
}

/// One row of a NormBackward as a team sees it.
template <typename T, int size>
struct GradientRow {
  const NormBackward<T>& norm;
  int64_t start;
  float mean, inverse;

  __device__ float normalised(const Pack<T, size>& x, int i) const {
    return (static_cast<float>(x.values[i]) - mean) * inverse;
  }
  __device__ float weight(int p, int i) const {
    return norm.weight != nullptr ? norm.weight[p * size + i] : 1.0f;
  }
};

/// Each block handles `block_rows` rows. A thread adds up its columns' part of the weight's gradient
/// in shared memory, [teams, size, packs]; at the end the teams' parts are added in order.
template <typename T, int size, bool whole_block>
__global__ void norm_gradient_rows(NormBackward<T> norm, int64_t block_rows) {
  using Rows = Team<whole_block>;
  const int packs = static_cast<int>(norm.width / size);
  float* const sums = dynamic_shared<float>() + Rows::number() * norm.width;
  if (norm.weight != nullptr) {
    for_each_pack<Rows>(packs, [&](int p) {
      for (int i = 0; i < size; ++i) sums[i * packs + p] = 0;
    });
  }
  const int64_t first = static_cast<int64_t>(blockIdx.x) * block_rows;
  for (int64_t r = 0; r < block_rows; r += Rows::count()) {
    const int64_t at = first + r + Rows::number();
    const bool exists = r + Rows::number() < block_rows && at < norm.rows;
    const int64_t index = exists ? at : 0;
    const int mine = exists ? packs : 0;
    const GradientRow<T, size> row{norm, index * norm.width,
                                   norm.mean != nullptr ? norm.mean[index] : 0.0f,
                                   norm.inverse[index]};
    const T* const x = norm.x + row.start;
    const T* const of_output = norm.output_gradient + row.start;

    float gradient_total = 0, product_total = 0;
    for_each_pack<Rows>(mine, [&](int p) {
      const Pack<T, size> values = load_pack<size>(x, p);
      const Pack<T, size> gradients = load_pack<size>(of_output, p);
      for (int i = 0; i < size; ++i) {
        const auto gradient = static_cast<float>(gradients.values[i]);
        const float product = gradient * row.normalised(values, i);
        gradient_total += gradient * row.weight(p, i);
        product_total += product * row.weight(p, i);
        if (norm.weight != nullptr) sums[i * packs + p] += product;
      }
    });
    const auto width = static_cast<float>(norm.width);
    const float product_mean = Rows::sum(product_total) / width;
    const float gradient_mean = norm.mean != nullptr ? Rows::sum(gradient_total) / width : 0.0f;

    for_each_pack<Rows>(mine, [&](int p) {
      const Pack<T, size> values = load_pack<size>(x, p);
      Pack<T, size> gradients = load_pack<size>(of_output, p);
      Pack<T, size> of_sum{};
      if (norm.sum_gradient != nullptr) of_sum = load_pack<size>(norm.sum_gradient + row.start, p);
      for (int i = 0; i < size; ++i) {
        const float gradient = static_cast<float>(gradients.values[i]) * row.weight(p, i);
        const float through_norm =
            row.inverse * (gradient - gradient_mean - row.normalised(values, i) * product_mean);
        gradients.values[i] = round_to<T>(through_norm + static_cast<float>(of_sum.values[i]));
      }
      store_pack(norm.x_gradient + row.start, p, gradients);
    });
  }
  if (norm.weight == nullptr) return;
  __syncthreads();
  const float* const all = dynamic_shared<float>();
  float* const partial = norm.partial + static_cast<int64_t>(blockIdx.x) * norm.width;
  for (int column = static_cast<int>(threadIdx.x); column < norm.width;
       column += static_cast<int>(blockDim.x)) {
    const int place = column % size * packs + column / size;
    float total = 0;
    for (int team = 0; team < Rows::count(); ++team) total += all[team * norm.width + place];
    partial[column] = total;
  }
}

/// weight_gradient = the sum of the blocks' parts, in order.
template <typename T>
__global__ void add_weight_parts(NormBackward<T> norm, int64_t blocks) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= norm.width) return;
  float total = 0;
  for (int64_t block = 0; block < blocks; ++block) {
    total += norm.partial[block * norm.width + column];
  }
  norm.weight_gradient[column] = total;
}

/// How rows of `packs` packs are cut into teams.
struct Teams {
  bool whole_block;
  int threads, count;

  explicit Teams(int64_t packs) : whole_block(packs > kLanes) {
    constexpr int64_t kWideBlock = 512;
    threads = whole_block
                  ? static_cast<int>(std::min(kWideBlock, round_up(packs, int64_t{kLanes})))
                  : 4 * kLanes;
    count = whole_block ? 1 : 4;
  }
};

/// Calls body(pack size, whole block) with both as compile-time constants.
template <typename T, typename Body>
void for_row_width(int64_t width, Body&& body) {
  const auto with_size = [&](auto size) {
    Teams(width / size).whole_block ? body(size, std::true_type{}) : body(size, std::false_type{});
  };
  if (width % kPackSize<T> == 0) {
    with_size(std::integral_constant<int, kPackSize<T>>{});
  } else {
    with_size(std::integral_constant<int, 1>{});
  }
}

}  // namespace

template <typename Vendor, typename T>
void norm_device(const NormForward<T>& norm, Stream& stream) {
  for_row_width<T>(norm.width, [&](auto size, auto whole_block) {
    const Teams teams(norm.width / size);
    launch(norm_rows<T, size, whole_block>,
           {.blocks = (norm.rows + teams.count - 1) / teams.count, .threads = teams.threads},
           stream, norm);
  });
}

template <typename Vendor, typename T>
void norm_gradient_device(const NormBackward<T>& norm, Stream& stream) {
  const int64_t block_rows = norm_block_rows(norm.rows);
  const int64_t blocks = (norm.rows + block_rows - 1) / block_rows;
  for_row_width<T>(norm.width, [&](auto size, auto whole_block) {
    const Teams teams(norm.width / size);
    const auto shared = norm.weight != nullptr ? teams.count * norm.width * sizeof(float) : 0;
    launch(norm_gradient_rows<T, size, whole_block>,
           {.blocks = blocks,
            .threads = teams.threads,
            .shared_bytes = static_cast<int>(shared)},
           stream, norm, block_rows);
  });
  if (norm.weight == nullptr) return;
  constexpr int kThreads = 256;
  launch(add_weight_parts<T>,
         {.blocks = (norm.width + kThreads - 1) / kThreads, .threads = kThreads}, stream, norm,
         blocks);
}

template void norm_device<ThisVendor>(const NormForward<float>&, Stream&);
template void norm_device<ThisVendor>(const NormForward<BFloat16>&, Stream&);
template void norm_gradient_device<ThisVendor>(const NormBackward<float>&, Stream&);
template void norm_gradient_device<ThisVendor>(const NormBackward<BFloat16>&, Stream&);

}  // namespace tessera
