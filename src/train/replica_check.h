#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/rank_control.h"
#include "data/loader.h"
#include "engine/executor.h"
#include "state/parameter_store.h"

namespace tessera {

/// Checks that ranks which must hold the same values do. It checks the *leaves* of the programs,
/// the values that no node computes: weights, main gradients, states and inputs. The ranks of an
/// axis on which the type of a leaf is invariant or replicated must hold the same bytes. They
/// compare hashes, so a check costs one pass over the memory. All ranks make the same calls. Ranks
/// compare what their own pipeline stage has, and the stages a tied head's table.
class ReplicaCheck {
 public:
  /// Keeps references to the executor and the control. The executor runs `programs` programs.
  /// Tensors of the store and their working copies are checked by parameter, other values that are
  /// kept between runs as a whole.
  ReplicaCheck(Executor& executor, int programs, const ParameterStore& store,
               const RankControl& control);

  /// Checks the leaves that are kept between steps; call it between two steps. If copies differ,
  /// throws Error on all ranks, which names the first such leaf, its type and each copy's ranks.
  void check_kept() const;
  /// Checks that ranks which share sequences have the same batches, whatever their pipeline stage.
  /// Throws Error on all ranks that names two that have not.
  void check_batches(std::span<const Batch> batches) const;
  /// Checks the inputs that a program has in a frame (Action::micro_batch), from a batch or from
  /// another stage, before it runs. The ranks of a pipeline stage call it together, and throw as
  /// check_kept() does.
  void check_inputs(int program, int frame) const;

 private:
  /// A tensor in this rank's memory, and its distribution over the ranks.
  struct Leaf {
    std::string name;
    Distribution distribution;
    Tensor tensor;
  };

  /// A kept tensor of which several stages have the same.
  struct StageCopies {
    std::string name;
    std::vector<int> stages;
    Tensor tensor;  ///< undefined on other stages
  };

  std::optional<std::string> difference(const std::vector<Leaf>& leaves,
                                        const RankControl& stage) const;
  std::optional<std::string> difference_between_stages() const;

  Executor& executor_;
  const Mesh& mesh_;
  const RankControl& control_;
  RankControl stage_control_;
  RankControl inputs_control_;
  std::vector<Leaf> kept_;
  std::vector<StageCopies> copies_;
};

}  // namespace tessera
