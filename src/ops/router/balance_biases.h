#pragma once

#include "program/builder.h"

namespace tessera {

/// ZAYA1's controller of the biases that balance a router (section IV-A): AdamW without weight
/// decay. In place of a gradient it takes the deviation of each class's load from an equal share. A
/// class is an expert or the class of tokens that skip the experts (ops/moe/skip_class.h).
struct BalanceController {
  double rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
};

/// The biases and the controller's moments: [classes] in f32 or f64, kept between runs.
struct BalanceState {
  Value biases, first_moment, second_moment;
  Value step;  ///< f64 [1]: the number of this step of the controller, counted from 1
};

/// Does one step of the controller. `counts`, i32 [classes], are those of a micro-batch over all
/// ranks. AdamW's g is count / Σ count − 1 / classes, so the bias of a class falls if the class
/// gets more than its share. If all counts are 0, nothing changes. The step itself has no gradient.
/// Throws InternalError if the shapes or types do not fit.
void step_balance(Builder& builder, const BalanceState& state, Value counts,
                  const BalanceController& controller);

/// Does loss-free balancing (DeepSeek-V3): biases += rate · sign(mean(counts) − counts). The biases
/// are [classes] in f32 or f64, kept between runs. `counts`, f64 [classes], are the counts of
/// a whole step. There is no gradient. Throws InternalError if the shapes or types do not fit.
void balance_by_sign(Builder& builder, Value biases, Value counts, double rate);

}  // namespace tessera
