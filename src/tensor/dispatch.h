#pragma once

#include "base/error.h"
#include "tensor/dtype.h"

namespace tessera {

/// Calls function(T{}) with the C++ type of a floating DType: double, float or BFloat16.
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

/// Calls function(T{}) for the types of sums and statistics: double or float.
template <typename Function>
decltype(auto) dispatch_wide(DType dtype, Function&& function) {
  if (dtype == DType::f64) return function(double{});
  TESSERA_CHECK(dtype == DType::f32, "not an accumulation type: {}", dtype_name(dtype));
  return function(float{});
}

}  // namespace tessera
