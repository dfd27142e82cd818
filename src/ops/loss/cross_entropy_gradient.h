#pragma once

#include <utility>

#include "program/builder.h"

namespace tessera {

/// The gradients of linear_cross_entropy: of x, a new value, and of the weight, which must be a
/// parameter and whose gradient is added into its main gradient, given back as the second. `seed`
/// is the gradient of the loss, [1]. Throws InternalError when the weight is no parameter.
std::pair<Value, Value> linear_cross_entropy_gradient(Builder& builder, Value x, Value weight,
                                                      Value targets, Value log_sum_exp, Value seed,
                                                      double z_coefficient);

}  // namespace tessera
