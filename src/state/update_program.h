#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/chunk.h"
#include "model/parameter.h"
#include "state/balance_program.h"
#include "state/optimizer_config.h"
#include "state/shard_plan.h"
#include "state/state_shard.h"

namespace tessera {

/// Writes the program that runs before the micro-batches of a step. The program sets main gradients
/// and sums to zero, and copies the biases that balance routers (see begin_balance()).
Program write_step_start(std::span<const ParameterUnit> units,
                         std::span<const ParameterSpec> parameters, std::span<const StepSum> sums,
                         const MeshRank& mesh_rank = {}, const StateSharing& sharing = {});

/// The program that runs after the micro-batches of a step. It adds up the gradients and the sums
/// of all ranks. Then it computes the norm of the gradients, clips them and updates all units that
/// have gradients, by AdamW or Muon (see muon_program.h).
struct UpdateProgram {
  Program program;
  Value learning_rate;  ///< f64 [1], an input of each step, like the next two (see schedule.h)
  Value clip_norm;      ///< 0: no clipping
  Value step;           ///< counted from 1
  Value gradient_norm;  ///< f64 [1], an output, like the next
  Value scale;          ///< the factor on gradients; NaN if nothing was updated
  std::map<std::string, Value> totals;    ///< the sums over all ranks, by name: outputs
  std::vector<OptimizerName> updated_by;  ///< by unit
  StateSharing sharing;                   ///< the way in which ranks share out the state
  std::optional<Value> muon_measures;     ///< f64 [4] (see muon_measures()), an output; with Muon
};

/// Returns the way in which ranks share out the state in a run of this configuration.
StateSharing sharing_of(const OptimizerConfig& config, const ShardPlan& shard);

/// Writes the update program. `parameters` are those of `units`, in the order in which their
/// squares are added up. Nothing is updated if the norm or a loss (a sum [1]) is not finite.
/// `shard` says in which format gradients are sent, and which parts of the state ranks share out.
/// If these have the masters and moments, each rank takes its piece of the summed gradients,
/// updates that piece and sends its weights to the others that store them. Sharing out masters and
/// moments alone does not change the bits of the weights. The last of `sums` are the counts of the
/// layers that `balance` names, in that order.
UpdateProgram write_update(std::span<const ParameterUnit> units,
                           std::span<const ParameterSpec> parameters, std::span<const StepSum> sums,
                           const OptimizerConfig& config, const MeshRank& mesh_rank = {},
                           const ShardPlan& shard = {}, const BalancedUnits& balance = {});

/// Writes the program that runs after the masters were set from outside (first values, a
/// checkpoint). The program rounds the masters to the weights that the other programs compute with.
/// Where ranks share the masters out, it then gives each rank all weights.
Program write_rounding(std::span<const ParameterUnit> units,
                       std::span<const ParameterSpec> parameters, const MeshRank& mesh_rank = {},
                       const StateSharing& sharing = {});

/// Returns whether weight decay applies to a parameter under the configured rule.
bool decays(const OptimizerConfig& config, const ParameterSpec& spec);

}  // namespace tessera
