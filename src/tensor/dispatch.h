#pragma once

#include <utility>

#include "base/error.h"
#include "tensor/dtype.h"

namespace tessera {

/// Calls function(T{}) with the C++ type of a floating DType that the program computes in: double,
/// float or BFloat16.
template <typename Function>
decltype(auto) dispatch_floating(DType dtype, Function&& function) {
  switch (dtype) {
    case DType::f64:
      return function(double{});
    case DType::f32:
      return function(float{});
    case DType::bf16:
      return function(BFloat16{});
    default:
      break;
  }
  throw InternalError("not a floating element type: " + std::string(dtype_name(dtype)));
}

/// Calls function(T{}) with the C++ type of a DType that devices compute in: float or BFloat16.
template <typename Function>
decltype(auto) dispatch_device(DType dtype, Function&& function) {
  if (dtype == DType::bf16) return function(BFloat16{});
  TESSERA_CHECK(dtype == DType::f32, "devices do not compute in {}", dtype_name(dtype));
  return function(float{});
}

/// Calls function(T{}) with the C++ type of a floating DType that a file may hold: double, float,
/// BFloat16 or Float16.
template <typename Function>
decltype(auto) dispatch_stored(DType dtype, Function&& function) {
  if (dtype == DType::f16) return function(Float16{});
  return dispatch_floating(dtype, std::forward<Function>(function));
}

/// Calls function(T{}) with the C++ type of a DType of sums and statistics: double or float.
template <typename Function>
decltype(auto) dispatch_wide(DType dtype, Function&& function) {
  if (dtype == DType::f64) return function(double{});
  TESSERA_CHECK(dtype == DType::f32, "not an accumulation type: {}", dtype_name(dtype));
  return function(float{});
}

}  // namespace tessera
