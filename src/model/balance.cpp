#include "model/balance.h"

#include "ops/router/balance_biases.h"
#include "program/view.h"

namespace tessera {
namespace {

constexpr double kSkipClassAtFirst = -1;

ChangedBy changed_by(BiasBalancing balancing) {
  return balancing == BiasBalancing::controller ? ChangedBy::controller : ChangedBy::sign;
}

}  // namespace

std::optional<BalanceBiases> declare_balance_biases(ModelWriter& writer) {
  const ModelConfig& config = writer.config;
  if (config.balance_biases == BiasBalancing::none) return std::nullopt;
  Builder& builder = writer.builder;
  const auto scope = builder.scope("router", Block::router);
  Initialization how;
  if (config.skip_expert != SkipExpert::none) how.last = kSkipClassAtFirst;
  const Value kept = writer.parameters.declare(
      builder, "balancing_biases", {config.router_classes()}, {}, writer.wide(),
      ParameterRole::balance, how, writer.unit + ".balance", changed_by(config.balance_biases));
  const ParameterUnit& unit = writer.parameters.units().back();
  BalanceBiases result{.biases = kept, .unit = unit.name, .first_moment = {}, .second_moment = {}};
  if (!writer.trains) return result;
  const Spec spec = builder.spec(unit.value);
  const auto part = [&](const std::string& name) {
    const Value state = builder.state(working_name(name), spec);
    return view(builder, state, 0, {config.router_classes()}, unit.distribution,
                working_name(name) + ".classes");
  };
  result.biases = part(unit.name);
  if (unit.changed_by != ChangedBy::controller) return result;
  result.first_moment = part(first_moment_name(unit));
  result.second_moment = part(second_moment_name(unit));
  return result;
}

void follow_load(ModelWriter& writer, const BalanceBiases& balance, Value counts) {
  if (!balance.first_moment) return;
  const auto scope = writer.builder.scope("router", Block::router);
  step_balance(writer.builder,
               {.biases = balance.biases,
                .first_moment = balance.first_moment,
                .second_moment = balance.second_moment,
                .step = writer.balance_step},
               counts, {.rate = writer.config.balance_bias_rate});
}

}  // namespace tessera
