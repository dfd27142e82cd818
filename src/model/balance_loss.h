#pragma once

#include <optional>
#include <span>
#include <string>

#include "model/layers.h"
#include "model/model_writer.h"
#include "ops/router/losses.h"

namespace tessera {

/// Returns whether a model that trains passes sums for its load-balance loss (see Boundary) from
/// one program to another before layer `layer`: the loss pools all layers, and there are mixture
/// layers before this one and from it on.
bool passes_balance_sums(const ModelConfig& config, int64_t layer);

/// Declares these sums as inputs of this program, beside the others of a boundary before layer
/// `layer`, if they are passed on there. `name` begins the names of the inputs.
void declare_balance_sums(ModelWriter& writer, const std::string& name, int64_t layer,
                          Boundary& boundary);
/// Declares the gradients of these sums as inputs in the same way. The counts have none.
void declare_balance_gradients(ModelWriter& writer, const std::string& name, int64_t layer,
                               Boundary& gradients);

/// What a program's mixture layers add to the load-balance loss.
struct BalanceResults {
  std::optional<Value>
      loss;                 ///< [1], of all layers that it covers; none if the next program has it
  EarlierLayers passed_on;  ///< if the loss covers layers of the next programs as well
};

/// Writes the load-balance loss of the layers in `routed`, which end before layer `end` of the
/// model, and returns it. Where the loss pools layers of several programs, the last one has it, and
/// the others pass on their sums. `boundary` is from the program before, null without one.
/// `tokens_so_far` has, by layer, the sum of its counts over the micro-batches of a step.
BalanceResults write_balance_loss(ModelWriter& writer, std::span<const RoutedLayer> routed,
                                  std::span<const Value> tokens_so_far, const Boundary& boundary,
                                  int64_t end);

}  // namespace tessera
