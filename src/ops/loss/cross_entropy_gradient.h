#pragma once

#include <utility>

#include "program/builder.h"

namespace tessera {

/// The gradients of linear_cross_entropy: of x, a new value, and of the weight, which is added into
/// its main gradient (given back as the second) when the weight is a parameter. `seed` is the
/// gradient of the loss, [1].
std::pair<Value, Value> linear_cross_entropy_gradient(Builder& builder, Value x, Value weight,
                                                      Value targets, Value log_sum_exp, Value seed,
                                                      double z_coefficient);

}  // namespace tessera
