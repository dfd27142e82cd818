#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/rank_control.h"
#include "engine/executor.h"
#include "model/parameter.h"
#include "state/unit_shard.h"

namespace tessera {

/// Checks on data what types say of leaves, which are the values that no node makes: weights, main
/// gradients, states and inputs. The ranks of an axis on which a leaf is invariant or replicated
/// must hold the same bytes. Types alone say which ranks these are. All ranks make the same calls.
///
/// Ranks exchange a hash of each leaf. So a check costs one pass over this rank's memory.
class ReplicaCheck {
 public:
  /// Refers to all arguments. The executor runs on the processor. `parameters` are those of the
  /// units in its programs: what belongs to a unit is checked by parameter. `shards` say which
  /// states of them this rank has.
  ReplicaCheck(const Executor& executor, int programs, const ParameterList& parameters,
               const StateShards& shards, const RankControl& control);

  /// Checks what is kept between runs. Call it between two steps. Throws Error on all ranks if
  /// copies differ. It names the first such leaf, its type and the ranks that hold each copy.
  void check_kept() const;
  /// The same of the inputs of a program, which were just written.
  void check_inputs(int program) const;

 private:
  /// Some memory that this rank holds, and how it lies over the ranks.
  struct Leaf {
    std::string name;
    Distribution distribution;
    Tensor tensor;
  };

  void add(std::vector<Leaf>& leaves, const ValueInfo& info, const Tensor& tensor) const;
  bool is_cut(size_t unit, const Distribution& distribution) const;
  void check(const std::vector<Leaf>& leaves) const;

  const Executor& executor_;
  const Mesh& mesh_;
  const ParameterList& parameters_;
  const StateShards& shards_;
  int rank_;
  const RankControl& control_;
  std::vector<Leaf> kept_;
};

}  // namespace tessera
