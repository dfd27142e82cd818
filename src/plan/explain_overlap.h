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
  std::string axes;         ///< "tensor" or "tensor+data"
  std::string operation;    ///< with its block: "all_to_all of experts"; "messages of activations"
  bool is_message = false;  ///< of the pipeline
  int calls = 0;
  double seconds = 0;
  double exposed = 0;                    ///< for which the compute lane waits
  double exposed_written = 0;            ///< for which it would wait in the order as it is written
  double exposed_unbounded = 0;          ///< for which it would wait if memory had no bound
  double waiting = 0;                    ///< for which it waits until other stages come to the call
  std::map<std::string, double> beside;  ///< the seconds of what is computed meanwhile

  double hidden() const { return seconds > exposed ? seconds - exposed : 0; }
  /// Returns why seconds stay exposed.
  std::string reason() const;
};

/// How communication runs beside computing in a step of one rank.
struct OverlapAccount {
  std::string times;             ///< where the seconds come from
  double computing = 0;          ///< seconds of the rank's compute lane
  double seconds = 0;            ///< of the step
  double seconds_written = 0;    ///< of the step in the order as it is written
  std::string turns;             ///< which micro-batches take turns, or why none do; a sentence
  int calls_alone = 0;           ///< see PredictedStep
  std::vector<OverlapRow> rows;  ///< those with the most seconds first
};

/// Returns the account of a rank in a step of one phase; it has no rows if there is one rank. Of
/// each other stage of a pipeline the rank with the same coordinates on all other axes runs too.
OverlapAccount overlap_account(const RunConfig& config, const StepPlan& plan);

/// Returns the account as a table with a line before it, and as JSON.
std::string overlap_table(const OverlapAccount& account);
nlohmann::ordered_json overlap_json(const OverlapAccount& account);

}  // namespace tessera
