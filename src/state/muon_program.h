#pragma once

#include <span>
#include <vector>

#include "model/parameter.h"
#include "ops/update/adamw.h"
#include "state/optimizer_config.h"
#include "state/state_shard.h"

namespace tessera {

/// Returns the optimizer that updates a parameter. In a run with Muon, Muon updates hidden matrices
/// (Keller Jordan; Moonlight; ZAYA1, section V-D). These are the parameters of two dims that are
/// neither embedding nor head, routers included, and the matrix of each expert. AdamW updates all
/// else: embeddings, heads, norms and other vectors, and convolutions.
OptimizerName updated_by(const OptimizerConfig& config, const ParameterSpec& parameter);
OptimizerName updated_by(const OptimizerConfig& config, const ParameterUnit& unit);

/// The operands of Muon's part of an update program.
struct MuonOperands {
  const OptimizerConfig& config;
  std::span<const ParameterUnit> units;
  std::span<const ParameterSpec> parameters;  ///< the parameters of the units
  const StateShard& shard;                    ///< says which states this rank has
  /// By unit. The gradients are summed over all ranks: whole, or this rank's piece. The first
  /// moment of a unit that Muon updates is its momentum.
  std::span<const AdamWUnit> states;
  Value scale;          ///< as in AdamWInputs, in the dense view of the mesh
  Value learning_rate;  ///< f64 [1], in that view
};

/// Appends the update of all parameters that Muon updates: momentum, Newton-Schulz, update, over
/// groups of matrices of one distribution. Only one group's results take memory at a time.
///
/// If ranks split matrices by rows or columns, MuonSplit decides: the matrices are gathered for
/// Newton-Schulz and each rank takes its piece of the result, or each rank's piece counts as a
/// matrix. If ranks share out the states, each orthogonalises its own matrices, and a cut matrix is
/// gathered by one of the ranks that have a piece of it (see matrix_chains()).
///
/// Returns the muon_measures(): one value for each distribution, or for each chain if ranks share
/// out the states. All ranks get equally many, in the same order; none if Muon updates nothing.
std::vector<Value> write_muon(Builder& builder, const MuonOperands& operands);

}  // namespace tessera
