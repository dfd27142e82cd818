#pragma once

#include "ops/router/softmax_rows.h"
#include "ops/support.h"

namespace tessera {

/// Calls function(T{}, exponential) for a tensor of f64 or f32. The exponential is the exact one if
/// the plain kernel is to run, and the fast one otherwise.
template <typename Function>
void dispatch_exponential(const Runtime& runtime, DType dtype, Function&& function) {
  if (dtype == DType::f64) {
    function(double{}, ExactExponential{});
  } else if (use_plain(runtime.target(), dtype)) {
    function(float{}, ExactExponential{});
  } else {
    function(float{}, FastExponential{});
  }
}

/// Returns true if a spec is what routers compute on: [tokens, experts] in f32 or f64.
inline bool is_router_matrix(const Spec& spec) {
  return spec.shape.rank() == 2 && (spec.dtype == DType::f32 || spec.dtype == DType::f64);
}

}  // namespace tessera
