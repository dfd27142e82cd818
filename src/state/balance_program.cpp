#include "state/balance_program.h"

#include <algorithm>

#include "base/error.h"
#include "ops/router/balance_biases.h"
#include "ops/update/kept_values.h"
#include "program/view.h"

namespace tessera {
namespace {

/// The values of a unit that are kept between steps, and the copies that a step works on. Each list
/// has the biases and then the moments, if the unit has any.
struct KeptAndWorking {
  const ParameterUnit* unit;
  std::vector<Value> kept, working;
};

/// Declares the values of all units of this stage that no optimizer changes.
std::vector<KeptAndWorking> declare_balance(Builder& builder,
                                            std::span<const ParameterUnit> units) {
  std::vector<KeptAndWorking> result;
  const int stage = builder.program().mesh().stage(builder.program().rank());
  for (const ParameterUnit& unit : units) {
    if (unit.has_gradients() || !unit.on_stage(stage)) continue;
    const Spec spec{{unit.elements}, unit.dtype, unit.distribution};
    KeptAndWorking values{.unit = &unit,
                          .kept = {builder.parameter(unit.name, spec)},
                          .working = {builder.state(working_name(unit.name), spec)}};
    if (unit.has_moments()) {
      for (const std::string& name : {first_moment_name(unit), second_moment_name(unit)}) {
        values.kept.push_back(builder.state(name, spec));
        values.working.push_back(builder.state(working_name(name), spec));
      }
    }
    result.push_back(std::move(values));
  }
  return result;
}

/// Returns the kept and the working values of all units, in two lists of the same order.
KeptAndWorking joined(std::span<const KeptAndWorking> units) {
  KeptAndWorking all{.unit = nullptr, .kept = {}, .working = {}};
  for (const KeptAndWorking& unit : units) {
    all.kept.insert(all.kept.end(), unit.kept.begin(), unit.kept.end());
    all.working.insert(all.working.end(), unit.working.begin(), unit.working.end());
  }
  return all;
}

}  // namespace

void begin_balance(Builder& builder, std::span<const ParameterUnit> units) {
  const KeptAndWorking all = joined(declare_balance(builder, units));
  if (!all.kept.empty()) copy_kept(builder, all.kept, all.working);
}

void end_balance(Builder& builder, std::span<const ParameterUnit> units,
                 const BalancedUnits& balance, std::span<const Value> totals, Value scale) {
  const std::vector<KeptAndWorking> declared = declare_balance(builder, units);
  const KeptAndWorking all = joined(declared);
  if (all.kept.empty()) return;
  for (size_t layer = 0; layer < balance.units.size(); ++layer) {
    const auto values = std::ranges::find_if(declared, [&](const KeptAndWorking& candidate) {
      return candidate.unit->name == balance.units[layer];
    });
    if (values == declared.end()) continue;  // another stage's
    const ParameterUnit& unit = *values->unit;
    if (unit.changed_by != ChangedBy::sign) continue;
    const int64_t classes = builder.spec(totals[layer]).shape[0];
    const Value biases = view(builder, values->working[0], 0, {classes}, unit.distribution,
                              working_name(unit.name) + ".classes");
    balance_by_sign(builder, biases, totals[layer], balance.rate);
  }
  copy_kept(builder, all.working, all.kept, scale);
}

}  // namespace tessera
