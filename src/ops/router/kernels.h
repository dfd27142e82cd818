#pragma once

#include "ops/router/softmax_rows.h"
#include "ops/support.h"

namespace tessera {

/// Calls function(T{}, exponential) for a tensor of f64 or f32. The exponential is the exact one
/// for the plain kernel, and the fast one otherwise.
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

/// Returns whether a spec is a matrix of routers: [tokens, experts] in f32 or f64.
inline bool is_router_matrix(const Spec& spec) {
  return spec.shape.rank() == 2 && (spec.dtype == DType::f32 || spec.dtype == DType::f64);
}

}  // namespace tessera
