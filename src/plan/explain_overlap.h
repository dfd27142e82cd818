#pragma once

#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "config/run_config.h"
#include "plan/step_plan.h"

namespace tessera {

/// The calls of other ranks that one kind of operation makes over some axes in a step, as predicted
/// (see predict_step()). Seconds are of all of them.
struct OverlapRow {
  std::string axes;       ///< "tensor" or "tensor+data"
  std::string operation;  ///< with its block: "all_to_all of experts"
  int calls = 0;
  double seconds = 0;
  double exposed = 0;                    ///< for which the compute lane waits
  double exposed_written = 0;            ///< for which it would wait in the order as it is written
  double exposed_at_most_memory = 0;     ///< for which it would wait if memory had no bound
  std::map<std::string, double> beside;  ///< the seconds of what is computed meanwhile

  double hidden() const { return seconds > exposed ? seconds - exposed : 0; }
  /// Returns why seconds stay exposed.
  std::string reason() const;
};

/// How communication runs beside computing in a step of one rank.
struct OverlapAccount {
  std::string times;             ///< where the seconds come from
  double seconds = 0;            ///< of the step
  double seconds_written = 0;    ///< of the step in the order as it is written
  std::vector<OverlapRow> rows;  ///< those with the most seconds first
};

/// Returns the account of a rank; it has no rows if there is one rank. Messages between the stages
/// of a pipeline are left out: see explain_stages.h.
OverlapAccount overlap_account(const RunConfig& config, const StepPlan& plan);

/// Returns the account as a table with a line before it, and as JSON.
std::string overlap_table(const OverlapAccount& account);
nlohmann::ordered_json overlap_json(const OverlapAccount& account);

}  // namespace tessera
