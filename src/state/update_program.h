#pragma once

#include <optional>
#include <span>
#include <vector>

#include "model/chunk.h"
#include "model/parameter.h"
#include "state/balance_program.h"
#include "state/optimizer_config.h"
#include "state/shard_config.h"
#include "state/unit_shard.h"

namespace tessera {

/// Writes the program that runs before the micro-batches of a step. It sets main gradients and sums
/// to zero, and begins the work on biases that balance routers.
Program write_step_start(std::span<const ParameterUnit> units, std::span<const StepSum> sums,
                         const MeshRank& place = {});

/// The program that runs after the micro-batches of a step. It adds up what the ranks have of the
/// gradients and of the sums, once for the step. Then it takes the gradients' norm, clips them and
/// updates all units by AdamW or Muon (see muon_program.h).
struct UpdateProgram {
  Program program;
  Value learning_rate;  ///< f64 [1], like the next two: an input of each step (see schedule.h)
  Value clip_norm;      ///< 0: no clipping
  Value step;           ///< counted from 1
  Value gradient_norm;  ///< f64 [1], like the next: an output
  Value scale;          ///< the factor on gradients; NaN if nothing was updated
  std::vector<Value> totals;  ///< the sums of all ranks, in the order of the sums: outputs
  std::vector<OptimizerName> updated_by;  ///< by unit
  StateSharing sharing;                   ///< how ranks share out the states
  std::optional<Value> muon_measures;     ///< f64 [4] (see muon_measures()), an output; with Muon
};

/// How ranks share out the states under these settings.
StateSharing sharing_of(const OptimizerConfig& config, const ShardConfig& shard);

/// Writes the update program. `parameters` are those of `units`, in the order in which their
/// squares are added up. Nothing is updated if the norm or a sum of one number is not finite.
/// `shard` says how gradients travel to their sums, and whether ranks share out the masters and
/// moments: then each takes its piece of the sums, updates that piece and gives the others its
/// weights. The numbers are the same bits. The last sums are those of the layers that `balance`
/// names.
UpdateProgram write_update(std::span<const ParameterUnit> units,
                           std::span<const ParameterSpec> parameters, std::span<const StepSum> sums,
                           const OptimizerConfig& config, const MeshRank& place = {},
                           const ShardConfig& shard = {}, const BalanceOfStep& balance = {});

/// Writes the program that runs after the masters were set from outside (first values, a
/// checkpoint): it rounds them to the weights that the programs compute with. Where ranks share
/// them out, it gives each rank the weights of all.
Program write_rounding(std::span<const ParameterUnit> units,
                       std::span<const ParameterSpec> parameters, const MeshRank& place = {},
                       const StateSharing& sharing = {});

/// Whether weight decay applies to a parameter under the configured rule.
bool decays(const OptimizerConfig& config, const ParameterSpec& spec);

}  // namespace tessera
