#pragma once

#include <optional>
#include <span>
#include <vector>

#include "ops/update/section.h"
#include "program/builder.h"

namespace tessera {

/// The options that are the same in all steps.
struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.99;
  double epsilon = 1e-8;
  double weight_decay = 0;
};

/// The flat values of one unit (section.h). All but the weight have the accumulation type.
struct AdamWUnit {
  Value gradient;
  Value first_moment;
  Value second_moment;
  Value master;
  std::optional<Value> weight;  ///< the master rounded to bf16; none if the master is the weight
};

/// A section, and whether weight decay applies to it.
struct AdamWSection {
  Section section;
  bool decays = true;
};

/// The inputs that change from step to step, f64 [1] each.
struct AdamWInputs {
  Value scale;  ///< factor on the gradients; if NaN, nothing is updated
  Value learning_rate;
  Value step;  ///< t, counted from 1
};

/// Does one step of AdamW (Loshchilov and Hutter's decoupled weight decay, as PyTorch computes it)
/// over all units. It updates moments, master weight and rounded weight together in one pass. With
/// g' = scale · g,
///   m = β1 m + (1 - β1) g', v = β2 v + (1 - β2) g'²,
///   w = w - lr · decay · w - lr / (1 - β1^t) · m / (sqrt(v / (1 - β2^t)) + ε).
void adamw(Builder& builder, const AdamWInputs& inputs, std::span<const AdamWUnit> units,
           std::vector<AdamWSection> sections, const AdamWOptions& options);

}  // namespace tessera
