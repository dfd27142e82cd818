#pragma once

#include <cstdint>

#include "state/optimizer_config.h"
#include "state/parameter_store.h"

namespace tessera {

/// What one AdamW step needs beyond the states (Loshchilov and Hutter's decoupled weight decay, as
/// PyTorch computes it): with g' = gradient_scale · g and t = `step`,
///   m = β1 m + (1 - β1) g', v = β2 v + (1 - β2) g'²,
///   w = w - lr · decay · w - lr / (1 - β1^t) · m / (sqrt(v / (1 - β2^t)) + ε).
struct AdamWStep {
  int64_t step = 1;  ///< counted from 1
  double learning_rate = 0;
  double gradient_scale = 1;  ///< the clipping factor
};

/// Whether weight decay applies to a parameter under the configured rule.
bool decays(const OptimizerConfig& config, const ParameterSpec& spec);

/// One pass over every parameter: moments, master weight and rounded weight together.
void adamw_step(const ParameterStore& store, const OptimizerConfig& config, const AdamWStep& step,
                int threads);

/// The Euclidean norm of all main gradients, summed in f64 over fixed pieces: the same bits for any
/// number of threads.
double gradient_norm(const ParameterStore& store, int threads);

/// Bytes that adamw_step() reads and writes: gradients, and twice moments and masters; weights too
/// where they are not the masters.
double adamw_bytes(const ParameterStore& store);

/// Bytes of all main gradients.
double gradient_bytes(const ParameterStore& store);

}  // namespace tessera
