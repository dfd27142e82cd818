#pragma once

#include <map>
#include <string>
#include <vector>

#include "plan/step_plan.h"

namespace tessera {

/// A node of a program as the tables show it. Its results are "saved" if they stay in memory from
/// the forward to the backward pass, which uses them.
struct ExplainRow {
  int program = 0;  // index of StepPrograms::list()
  int node = 0;     // index of the program's node
  std::string operation, block, phase;
  std::string outputs;              // types and shapes: "bf16 [4096, 2048]"
  std::string results;              // "saved", "recomputed", "result" (of the run) or empty
  std::string labels;               // the dims of its operands by name (program/labels.h)
  bool labels_decide = false;       // true if the labels alone decide the outputs' distribution
  std::vector<Distribution> types;  // of the outputs
  int layer = -1;
  Cost cost;
  std::map<std::string, double> sent;  // bytes, by the axes: "tensor" or "tensor+data"
  int64_t saved_bytes = 0;             // of the results
  int64_t memory_bytes = 0;            // in use while the node runs
};

/// Returns the nodes of a step with one micro-batch on one rank, in the order in which they run:
/// those of the start, of the chunk and of the update. Views only give existing memory another
/// name, as retype operations do. They are left out unless `with_views`.
std::vector<ExplainRow> operation_rows(const StepPlan& plan, bool with_views);

/// Returns the bytes of a row over all axes.
double total_bytes(const std::map<std::string, double>& sent);

/// Returns the bytes that the rank sends in a step, by axes: the rows of the chunk once for each
/// micro-batch, and the other rows once.
std::map<std::string, double> sent_in_step(const StepPlan& plan,
                                           const std::vector<ExplainRow>& rows);

}  // namespace tessera
