#include <algorithm>

#include "device/packs.h"
#include "ops/moe/token_rows_kernels.h"

namespace tessera {
namespace {

// A warp handles one row or one token. Each of its threads starts kRowsAhead loads before it uses
// the first one. If it stored each result before the next load, the loads would run one after the
// other: the compiler must assume that a store changes the memory that is loaded next. A pack is a
// few neighbouring elements, loaded together. The formulas are in token_rows_kernels.h.

constexpr int kRowWarps = 4;  // warps of a block
constexpr int kRowsAhead = 4;  // loads that a thread has in flight at once

/// Copies one routed row per warp.
template <typename T, int size>
__global__ void gather_rows(RowGather<T> gather) {
  const int64_t row = warp_of_grid();
  if (row >= gather.rows) return;
  const int packs = static_cast<int>(gather.width / size);
  T* const to = gather.result + row * gather.width;
  const int64_t token = gather.token_of_row[row];
  if (token < 0) return;
  const T* const from = gather.x + token * gather.width;
  for (int first = this_lane(); first < packs; first += kRowsAhead * kLanes) {
    Pack<T, size> values[kRowsAhead];
    for (int a = 0; a < kRowsAhead; ++a) {
      const int p = first + a * kLanes;
      if (p < packs) values[a] = load_pack<size>(from, p);
    }
    for (int a = 0; a < kRowsAhead; ++a) {
      const int p = first + a * kLanes;
      if (p < packs) store_pack(to, p, values[a]);
    }
  }
}

/// The rows and weights of up to kRowsAhead choices of a token, from choice `first` on. Null
/// weights stand for ones.
struct ChosenRows {
  int64_t rows[kRowsAhead];  // negative where there is none
  float weights[kRowsAhead];

  __device__ ChosenRows(const int32_t* row_of_choice, const float* weight_of_choice, int64_t first,
                        int64_t k) {
    for (int a = 0; a < kRowsAhead; ++a) {
      const bool exists = first + a < k;
      rows[a] = exists ? row_of_choice[first + a] : -1;
      weights[a] = exists && weight_of_choice != nullptr ? weight_of_choice[first + a] : 1.0f;
    }
  }
};

/// Sums the rows of one token per warp.
template <typename In, typename Out, int size>
__global__ void sum_rows_of_tokens(RowSum<In, Out> sum) {
  const int64_t token = warp_of_grid();
  if (token >= sum.tokens) return;
  const int packs = static_cast<int>(sum.width / size);
  const int32_t* const row_of_choice = sum.row_of_choice + token * sum.k;
  const float* const weights = sum.weights != nullptr ? sum.weights + token * sum.k : nullptr;
  for (int p = this_lane(); p < packs; p += kLanes) {
    float total[size] = {};
    for (int64_t first = 0; first < sum.k; first += kRowsAhead) {
      const ChosenRows choices(row_of_choice, weights, first, sum.k);
      Pack<In, size> values[kRowsAhead];
      for (int a = 0; a < kRowsAhead; ++a) {
        if (choices.rows[a] < 0) continue;
        values[a] = load_pack<size>(sum.rows + choices.rows[a] * sum.width, p);
      }
      for (int a = 0; a < kRowsAhead; ++a) {
        if (choices.rows[a] < 0) continue;
        for (int i = 0; i < size; ++i) {
          total[i] += choices.weights[a] * static_cast<float>(values[a].values[i]);
        }
      }
    }
    Pack<Out, size> results;
    for (int i = 0; i < size; ++i) results.values[i] = round_to<Out>(total[i]);
    store_pack(sum.result + token * sum.width, p, results);
  }
}

/// Computes the gradients of one token per warp. Reads result_gradient once per kRowsAhead choices.
template <typename T, int size>
__global__ void sum_rows_gradient(RowSumGradient<T> gradient) {
  const int64_t token = warp_of_grid();
  if (token >= gradient.tokens) return;
  const int64_t k = gradient.k, width = gradient.width;
  const int packs = static_cast<int>(width / size);
  const T* const result_gradient = gradient.result_gradient + token * width;
  for (int64_t first = 0; first < k; first += kRowsAhead) {
    const int64_t choice = token * k + first;
    const ChosenRows choices(gradient.row_of_choice + token * k, gradient.weights + token * k,
                             first, k);
    float dots[kRowsAhead] = {};
    for (int p = this_lane(); p < packs; p += kLanes) {
      const Pack<T, size> token_gradient = load_pack<size>(result_gradient, p);
      Pack<T, size> values[kRowsAhead];
      for (int a = 0; a < kRowsAhead; ++a) {
        if (choices.rows[a] < 0) continue;
        values[a] = load_pack<size>(gradient.rows + choices.rows[a] * width, p);
      }
      for (int a = 0; a < kRowsAhead; ++a) {
        if (choices.rows[a] < 0) continue;
        Pack<T, size> row_gradient;
        for (int i = 0; i < size; ++i) {
          const auto element_gradient = static_cast<float>(token_gradient.values[i]);
          dots[a] += static_cast<float>(values[a].values[i]) * element_gradient;
          row_gradient.values[i] = round_to<T>(choices.weights[a] * element_gradient);
        }
        store_pack(gradient.rows_gradient + choices.rows[a] * width, p, row_gradient);
      }
    }
    for (int a = 0; a < kRowsAhead; ++a) {
      const float dot = warp_sum(dots[a]);
      if (first + a < k && this_lane() == 0) gradient.weights_gradient[choice + a] = dot;
    }
  }
}

Grid token_row_grid(int64_t count) {
  return {.blocks = (count + kRowWarps - 1) / kRowWarps, .threads = kRowWarps * kLanes};
}

}  // namespace

template <typename Vendor, typename T>
void gather_rows_device(const RowGather<T>& gather, Stream& stream) {
  with_pack_size<kPackSize<T>>(gather.width, [&](auto size) {
    launch(gather_rows<T, size>, token_row_grid(gather.rows), stream, gather);
  });
}

template <typename Vendor, typename In, typename Out>
void sum_rows_device(const RowSum<In, Out>& sum, Stream& stream) {
  // A pack is 16 bytes of the wider of the two types.
  with_pack_size<std::min(kPackSize<In>, kPackSize<Out>)>(sum.width, [&](auto size) {
    launch(sum_rows_of_tokens<In, Out, size>, token_row_grid(sum.tokens), stream, sum);
  });
}

template <typename Vendor, typename T>
void sum_rows_gradient_device(const RowSumGradient<T>& gradient, Stream& stream) {
  with_pack_size<kPackSize<T>>(gradient.width, [&](auto size) {
    launch(sum_rows_gradient<T, size>, token_row_grid(gradient.tokens), stream, gradient);
  });
}

template void gather_rows_device<ThisVendor>(const RowGather<float>&, Stream&);
template void gather_rows_device<ThisVendor>(const RowGather<BFloat16>&, Stream&);
template void sum_rows_device<ThisVendor>(const RowSum<float, float>&, Stream&);
template void sum_rows_device<ThisVendor>(const RowSum<float, BFloat16>&, Stream&);
template void sum_rows_device<ThisVendor>(const RowSum<BFloat16, float>&, Stream&);
template void sum_rows_device<ThisVendor>(const RowSum<BFloat16, BFloat16>&, Stream&);
template void sum_rows_gradient_device<ThisVendor>(const RowSumGradient<float>&, Stream&);
template void sum_rows_gradient_device<ThisVendor>(const RowSumGradient<BFloat16>&, Stream&);

}  // namespace tessera
