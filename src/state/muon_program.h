#pragma once

#include <span>
#include <vector>

#include "model/parameter.h"
#include "ops/update/adamw.h"
#include "state/optimizer_config.h"
#include "state/unit_shard.h"

namespace tessera {

/// Which optimizer updates a parameter. Of a run with Muon, Muon updates hidden matrices, each
/// expert's by itself (Keller Jordan; Moonlight; ZAYA1, section V-D): all of two dims that are
/// neither embedding nor head, a router's with them, and those of experts. AdamW updates all else:
/// embeddings, heads, norms and other vectors, and convolutions.
OptimizerName updated_by(const OptimizerConfig& config, const ParameterSpec& parameter);
/// The same of all parameters of a unit.
OptimizerName updated_by(const OptimizerConfig& config, const ParameterUnit& unit);

/// What Muon's part of an update program works on.
struct MuonPart {
  const OptimizerConfig& config;
  std::span<const ParameterUnit> units;
  std::span<const ParameterSpec> parameters;  ///< of the units
  const StateShards& shards;                  ///< say which of the states this rank has
  /// By unit; the gradients are whole sums, of all elements or of this rank's. The first moment of
  /// a unit of Muon's is its momentum.
  std::span<const AdamWUnit> states;
  Value scale;          ///< as of AdamWInputs, in the dense view of the mesh
  Value learning_rate;  ///< f64 [1], in that view
};

/// Writes Muon's update of all parameters that it updates: momentum, Newton-Schulz, update, over
/// groups of matrices that lie alike. What is orthogonalised takes memory for one group at a time.
///
/// Matrices that ranks split by rows or columns are gathered for Newton-Schulz over the axes that
/// split them, and each rank takes its piece of the result; or each rank's piece counts as a matrix
/// (MuonSplit). Where ranks share out the states, each orthogonalises the matrices of its own, and
/// matrices that are cut go to one of the ranks that have a piece (see matrix_chains()).
///
/// Returns the muon_measures() of the matrices, in one value for each way to lie. All ranks have
/// the same number of them, in the same order.
std::vector<Value> write_muon(Builder& builder, const MuonPart& part);

}  // namespace tessera
