#include "state/balance_program.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "ops/router/balance_biases.h"
#include "ops/update/copy.h"
#include "program/view.h"

namespace tessera {
namespace {

/// What is kept of a unit between steps, and the copies that a step works on: the biases first,
/// then moments if there are any.
struct KeptAndWorking {
  const ParameterUnit* unit;
  std::vector<Value> kept, working;
};

std::vector<KeptAndWorking> declare_balance(Builder& builder,
                                            std::span<const ParameterUnit> units) {
  std::vector<KeptAndWorking> result;
  for (const ParameterUnit& unit : units) {
    if (unit.has_gradients()) continue;
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

void copy_all(Builder& builder, std::span<const KeptAndWorking> units, bool to_working) {
  std::vector<Value> kept, working;
  for (const KeptAndWorking& unit : units) {
    kept.insert(kept.end(), unit.kept.begin(), unit.kept.end());
    working.insert(working.end(), unit.working.begin(), unit.working.end());
  }
  if (kept.empty()) return;
  to_working ? copy_kept(builder, kept, working) : copy_kept(builder, working, kept);
}

}  // namespace

void begin_balance(Builder& builder, std::span<const ParameterUnit> units) {
  copy_all(builder, declare_balance(builder, units), /*to_working=*/true);
}

void end_balance(Builder& builder, std::span<const ParameterUnit> units,
                 const BalanceOfStep& balance, std::span<const Value> totals) {
  const std::vector<KeptAndWorking> all = declare_balance(builder, units);
  for (size_t layer = 0; layer < balance.units.size(); ++layer) {
    const auto values = std::ranges::find_if(all, [&](const KeptAndWorking& candidate) {
      return candidate.unit->name == balance.units[layer];
    });
    TESSERA_CHECK(values != all.end(), "no unit {}", balance.units[layer]);
    const ParameterUnit& unit = *values->unit;
    if (unit.changed_by != ChangedBy::sign) continue;
    const int64_t classes = builder.spec(totals[layer]).shape[0];
    const Value biases = view(builder, values->working[0], 0, {classes}, unit.distribution,
                              working_name(unit.name) + ".classes");
    balance_by_sign(builder, biases, totals[layer], balance.rate);
  }
  copy_all(builder, all, /*to_working=*/false);
}

}  // namespace tessera
