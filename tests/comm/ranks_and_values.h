#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/bfloat16.h"
#include "base/error.h"
#include "comm/in_process/world.h"
#include "tensor/tensor.h"

namespace tessera {

inline std::vector<int> first_ranks(int count) {
  std::vector<int> ranks(static_cast<size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

/// Runs body(communicator) on so many ranks, which are one group.
inline void run_group(int size, const std::function<void(Communicator&)>& body) {
  World world(size);
  run_ranks(world, [&](int rank) {
    Communicator group = world.group(rank, first_ranks(size));
    body(group);
  });
}

/// An element of a tensor as a number. All types of elements fit.
inline double get(const Tensor& tensor, int64_t at) {
  switch (tensor.dtype()) {
    case DType::f64:
      return tensor.data<double>()[at];
    case DType::f32:
      return tensor.data<float>()[at];
    case DType::bf16:
      return static_cast<double>(static_cast<float>(tensor.data<BFloat16>()[at]));
    case DType::i32:
      return tensor.data<int32_t>()[at];
    default:
      return tensor.data<uint8_t>()[at];
  }
}

/// Sets an element to a number, which is rounded to the tensor's type.
inline void set(const Tensor& tensor, int64_t at, double value) {
  switch (tensor.dtype()) {
    case DType::f64:
      tensor.data<double>()[at] = value;
      break;
    case DType::f32:
      tensor.data<float>()[at] = static_cast<float>(value);
      break;
    case DType::bf16:
      tensor.data<BFloat16>()[at] = BFloat16(static_cast<float>(value));
      break;
    case DType::i32:
      tensor.data<int32_t>()[at] = static_cast<int32_t>(value);
      break;
    default:
      tensor.data<uint8_t>()[at] = static_cast<uint8_t>(value);
  }
}

/// Numbers of both signs and of many sizes, so that sums in another order have other bits.
inline Tensor random_tensor(const Shape& shape, DType dtype, int seed) {
  std::mt19937 generator(static_cast<unsigned>(seed));
  std::uniform_real_distribution<double> mantissa(-1, 1);
  std::uniform_int_distribution<int> exponent(-6, 6);
  std::uniform_int_distribution<int32_t> whole(-2000000000, 2000000000);
  std::uniform_int_distribution<int> byte(0, 255);
  const Tensor result(shape, dtype);
  for (int64_t i = 0; i < result.elements(); ++i) {
    const double number = dtype == DType::i32 ? whole(generator)
                          : dtype == DType::u8
                              ? byte(generator)
                              : std::ldexp(mantissa(generator), exponent(generator));
    set(result, i, number);
  }
  return result;
}

/// One random tensor for each rank, all different.
inline std::vector<Tensor> random_tensors(int ranks, const Shape& shape, DType dtype, int seed) {
  std::vector<Tensor> result;
  for (int rank = 0; rank < ranks; ++rank) {
    result.push_back(random_tensor(shape, dtype, seed * 64 + rank));
  }
  return result;
}

inline Tensor copy_of(const Tensor& tensor) {
  Tensor result(tensor.shape(), tensor.dtype());
  result.copy_from(tensor);
  return result;
}

/// The bytes of a tensor, to compare.
inline std::string bytes_of(const Tensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.raw()), static_cast<size_t>(tensor.bytes())};
}

/// The sum of one element of each addend, by the rule that all transports follow: in their order,
/// in f32 for bf16 with one rounding, which set() does.
inline double sum_in_order(std::span<const Tensor> addends, int64_t at) {
  double sum = get(addends[0], at);
  for (const Tensor& addend : addends.subspan(1)) {
    const double next = get(addend, at);
    switch (addend.dtype()) {
      case DType::f64:
        sum += next;
        break;
      case DType::i32:
        sum = static_cast<int32_t>(static_cast<uint32_t>(static_cast<int64_t>(sum + next)));
        break;
      default:
        sum = static_cast<float>(sum) + static_cast<float>(next);
    }
  }
  return sum;
}

}  // namespace tessera
