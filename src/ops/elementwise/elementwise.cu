#include <algorithm>
#include <type_traits>

#include "device/packs.h"
#include "ops/elementwise/elementwise_kernels.h"

namespace tessera {
namespace {

/// The number of elements that a thread handles at once: 16 bytes of the widest type. With more,
/// there would be gaps between the 16 bytes that the lanes of a warp read at a time.
template <typename... Types>
constexpr int kVector = std::min({kPackSize<Types>...});

struct ScaleBy {
  float factor;
  __device__ float operator()(float x) const { return x * factor; }
};
struct ClampTo {
  float bound;
  __device__ float operator()(float x) const {
    return x < -bound ? -bound : (x > bound ? bound : x);
  }
};
struct CopyOf {
  __device__ float operator()(float x) const { return x; }
};
struct SumOfBoth {
  __device__ float operator()(float total, float addend) const { return total + addend; }
};
struct WithinBound {
  float bound;
  __device__ float operator()(float x, float gradient) const {
    return x >= -bound && x <= bound ? gradient : 0.0f;
  }
};

/// Writes to[i] = function(from[i]).
template <typename From, typename To, typename Function>
__global__ void map_kernel(Function function, const From* from, To* to, int64_t count) {
  for_my_elements<kVector<From, To>>(count, [&](int64_t first, auto size) {
    const auto values = load_pack<size>(from + first, 0);
    Pack<To, size> results;
    for (int i = 0; i < size; ++i) {
      results.values[i] = round_to<To>(function(static_cast<float>(values.values[i])));
    }
    store_pack(to + first, 0, results);
  });
}

/// Writes to[i] = function(first[i], second[i]). The result may be in the memory of either operand.
template <typename First, typename Second, typename To, typename Function>
__global__ void map_pairs_kernel(Function function, const First* first_operand,
                                 const Second* second_operand, To* to, int64_t count) {
  for_my_elements<kVector<First, Second, To>>(count, [&](int64_t first, auto size) {
    const auto a = load_pack<size>(first_operand + first, 0);
    const auto b = load_pack<size>(second_operand + first, 0);
    Pack<To, size> results;
    for (int i = 0; i < size; ++i) {
      results.values[i] =
          round_to<To>(function(static_cast<float>(a.values[i]), static_cast<float>(b.values[i])));
    }
    store_pack(to + first, 0, results);
  });
}

template <int size, typename Total, typename T>
__device__ void add_pack(Total (&total)[size], const T* addend) {
  const auto pack = load_pack<size>(addend, 0);
  for (int i = 0; i < size; ++i) total[i] += static_cast<Total>(pack.values[i]);
}

/// Writes sum[i] = the sum of element i of all addends, in f32.
template <typename To>
__global__ void add_kernel(Addends addends, To* sum, int64_t count) {
  for_my_elements<kVector<To>>(count, [&](int64_t first, auto size) {
    float total[size] = {};
    for (int addend = 0; addend < addends.count; ++addend) {
      const void* const elements = addends.elements[addend];
      if (addends.are_bf16[addend]) {
        add_pack(total, static_cast<const BFloat16*>(elements) + first);
      } else {
        add_pack(total, static_cast<const float*>(elements) + first);
      }
    }
    Pack<To, size> results;
    for (int i = 0; i < size; ++i) results.values[i] = round_to<To>(total[i]);
    store_pack(sum + first, 0, results);
  });
}

/// Writes the same sums in f64, for numbers such as sums of squares.
__global__ void add_doubles(Addends addends, double* sum, int64_t count) {
  for_my_elements<kVector<double>>(count, [&](int64_t first, auto size) {
    Pack<double, size> total = {};
    for (int addend = 0; addend < addends.count; ++addend) {
      add_pack(total.values, static_cast<const double*>(addends.elements[addend]) + first);
    }
    store_pack(sum + first, 0, total);
  });
}

}  // namespace

template <typename Vendor, typename From, typename To>
void map_device(ElementMap map, double argument, const From* from, To* to, int64_t count,
                Stream& stream) {
  const auto value = static_cast<float>(argument);
  const auto run = [&](auto function) {
    launch(map_kernel<From, To, decltype(function)>, grid_of_elements<kVector<From, To>>(count),
           stream, function, from, to, count);
  };
  switch (map) {
    case ElementMap::copy:
      return run(CopyOf{});
    case ElementMap::scale:
      return run(ScaleBy{value});
    case ElementMap::clamp:
      return run(ClampTo{value});
  }
}

template <typename Vendor, typename Total, typename T>
void accumulate_device(Total* total, const T* addend, int64_t count, Stream& stream) {
  launch(map_pairs_kernel<Total, T, Total, SumOfBoth>, grid_of_elements<kVector<Total, T>>(count),
         stream, SumOfBoth{}, total, addend, total, count);
}

template <typename Vendor, typename T>
void clamp_gradient_device(double bound, const T* x, const T* gradient, T* result, int64_t count,
                           Stream& stream) {
  launch(map_pairs_kernel<T, T, T, WithinBound>, grid_of_elements<kVector<T>>(count), stream,
         WithinBound{static_cast<float>(bound)}, x, gradient, result, count);
}

template <typename Vendor, typename To>
void add_device(const Addends& addends, To* sum, int64_t count, Stream& stream) {
  if constexpr (std::is_same_v<To, double>) {
    launch(add_doubles, grid_of_elements<kVector<To>>(count), stream, addends, sum, count);
  } else {
    launch(add_kernel<To>, grid_of_elements<kVector<To>>(count), stream, addends, sum, count);
  }
}

template void map_device<ThisVendor>(ElementMap, double, const float*, float*, int64_t, Stream&);
template void map_device<ThisVendor>(ElementMap, double, const float*, BFloat16*, int64_t, Stream&);
template void map_device<ThisVendor>(ElementMap, double, const BFloat16*, float*, int64_t, Stream&);
template void map_device<ThisVendor>(ElementMap, double, const BFloat16*, BFloat16*, int64_t,
                                     Stream&);
template void accumulate_device<ThisVendor>(float*, const float*, int64_t, Stream&);
template void accumulate_device<ThisVendor>(float*, const BFloat16*, int64_t, Stream&);
template void accumulate_device<ThisVendor>(BFloat16*, const float*, int64_t, Stream&);
template void accumulate_device<ThisVendor>(BFloat16*, const BFloat16*, int64_t, Stream&);
template void clamp_gradient_device<ThisVendor>(double, const float*, const float*, float*, int64_t,
                                                Stream&);
template void clamp_gradient_device<ThisVendor>(double, const BFloat16*, const BFloat16*, BFloat16*,
                                                int64_t, Stream&);
template void add_device<ThisVendor>(const Addends&, float*, int64_t, Stream&);
template void add_device<ThisVendor>(const Addends&, BFloat16*, int64_t, Stream&);
template void add_device<ThisVendor>(const Addends&, double*, int64_t, Stream&);

}  // namespace tessera
