#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/rank_control.h"
#include "engine/executor.h"
#include "state/parameter_store.h"

namespace tessera {

/// Checks that ranks which must hold the same values do. It checks the *leaves* of the programs,
/// the values that no node computes: weights, main gradients, states and inputs. The ranks of an
/// axis on which the type of a leaf is invariant or replicated must hold the same bytes. They
/// compare hashes, so a check costs one pass over the memory. All ranks make the same calls.
class ReplicaCheck {
 public:
  /// Keeps references to the executor and the control. The executor runs `programs` programs.
  /// Tensors of the store and their working copies are checked by parameter, other values that are
  /// kept between runs as a whole.
  ReplicaCheck(const Executor& executor, int programs, const ParameterStore& store,
               const RankControl& control);

  /// Checks the leaves that are kept between steps; call it between two steps. If copies differ,
  /// throws Error on all ranks, which names the first such leaf, its type and each copy's ranks.
  void check_kept() const;
  /// Checks the inputs of a program, after they were written. Throws as check_kept() does.
  void check_inputs(int program) const;

 private:
  /// A tensor in this rank's memory, and its distribution over the ranks.
  struct Leaf {
    std::string name;
    Distribution distribution;
    Tensor tensor;
  };

  void check(const std::vector<Leaf>& leaves) const;

  const Executor& executor_;
  const Mesh& mesh_;
  const RankControl& control_;
  std::vector<Leaf> kept_;
};

}  // namespace tessera
