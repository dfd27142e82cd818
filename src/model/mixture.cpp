// A mixture-of-experts layer, in the order in which it is written: the biases that balance the
// router's choice, the router, the chosen experts, the update of the biases by this micro-batch's
// counts, the output of the skip class, and shared experts.

#include "model/mixture.h"

#include "model/experts.h"
#include "model/feed_forward.h"
#include "model/router.h"
#include "ops/collective/convert.h"
#include "ops/elementwise/elementwise.h"
#include "ops/moe/skip_class.h"
#include "ops/router/balance_biases.h"
#include "program/view.h"

namespace tessera {
namespace {

/// The first bias of the skip class, as in ZAYA1. A probability is at most 1, so with -1 no token
/// skips the experts before the controller has changed the bias.
constexpr double kFirstSkipBias = -1;

/// The biases that balance a router's choice, [classes], as a program reads them.
struct BalanceBiases {
  Value biases;
  std::string unit;  // the unit that keeps them between steps
  /// The moments of the controller's AdamW, [classes] each; null without a controller.
  Value first_moment, second_moment;
};

/// Declares a layer's biases as a unit of their own and returns them; none if no biases balance the
/// routers. The first biases are zero, except that of the skip class. A program that trains reads
/// and changes a working copy of the unit. Other programs make the copy at the start of a step and
/// copy it back at its end (state/balance_program.h), so a step that fails changes nothing.
std::optional<BalanceBiases> declare_balance_biases(ModelWriter& writer) {
  const ModelConfig& config = writer.config;
  if (config.balance_biases == BiasBalancing::none) return std::nullopt;
  Builder& builder = writer.builder;
  const auto scope = builder.scope("router", Block::router);
  Initialization initialization;
  if (config.skip_expert != SkipExpert::none) initialization.last_element = kFirstSkipBias;
  const ChangedBy changed_by =
      config.balance_biases == BiasBalancing::controller ? ChangedBy::controller : ChangedBy::sign;
  const Value stored = writer.parameters.declare(
      builder, "balancing_biases", {config.router_classes()}, {}, writer.wide(),
      ParameterRole::balance, initialization, writer.unit + ".balance", changed_by);
  const ParameterUnit& unit = writer.parameters.units().back();
  BalanceBiases result{
      .biases = stored, .unit = unit.name, .first_moment = {}, .second_moment = {}};
  if (!writer.changes_biases) return result;
  const Spec spec = builder.spec(unit.value);
  const auto working_copy = [&](const std::string& name) {
    const Value state = builder.state(working_name(name), spec);
    return view(builder, state, 0, {config.router_classes()}, unit.distribution,
                working_name(name) + ".classes");
  };
  result.biases = working_copy(unit.name);
  if (changed_by != ChangedBy::controller) return result;
  result.first_moment = working_copy(first_moment_name(unit));
  result.second_moment = working_copy(second_moment_name(unit));
  return result;
}

/// Writes the controller's update of the biases by a micro-batch's counts, i32 [classes], of all
/// ranks. Does nothing in a program that does not train, and if no controller changes the biases.
void update_biases(ModelWriter& writer, const BalanceBiases& balance, Value counts) {
  if (!balance.first_moment) return;
  const auto scope = writer.builder.scope("router", Block::router);
  step_balance(writer.builder,
               {.biases = balance.biases,
                .first_moment = balance.first_moment,
                .second_moment = balance.second_moment,
                .step = writer.balance_step},
               counts, {.rate = writer.config.balance_bias_rate});
}

}  // namespace

RoutedLayer mixture_of_experts(ModelWriter& writer, Value x, const ExpertLayout& layout,
                               std::optional<Value> previous_state) {
  const ModelConfig& config = writer.config;
  Builder& builder = writer.builder;
  const std::optional<BalanceBiases> balance = declare_balance_biases(writer);
  const Routing routing =
      route(writer, x, previous_state, balance ? std::optional(balance->biases) : std::nullopt);
  const ExpertResults routed = write_experts(writer, layout, x, routing.selection);
  if (balance) update_biases(writer, *balance, routed.counts);
  Value output = routed.output;  // [tokens, hidden]
  if (config.skip_expert == SkipExpert::input) {
    const auto scope = builder.scope("skip_expert", Block::experts);
    output = add_skipped(builder, output, x, routing.selection, config.experts);
  }
  if (config.shared_experts > 0) {
    const Value shared =
        feed_forward(writer, "shared_experts", config.shared_experts * config.expert_size, x);
    const auto scope = builder.scope("shared_experts", Block::feed_forward);
    output = add(builder, std::vector{output, shared}, writer.compute);
  }
  return {.output = output,
          .logits = routing.logits,
          .probabilities = routing.probabilities,
          .chosen = routing.selection.indices,
          .counts = routed.counts,
          .pinned = routing.pinned,
          .router_state = routing.state,
          .balance_unit = balance ? balance->unit : std::string()};
}

}  // namespace tessera
