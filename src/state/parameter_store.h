#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/executor.h"
#include "state/kept_tensor.h"

namespace tessera {

/// The training state of this rank, in the memory that the plan gave it. All that goes through the
/// state (loading, saving, first values, checks of copies and of NaN, verification) walks over
/// tensors().
class ParameterStore {
 public:
  /// Finds the tensors of the units that program `update` of the executor updates. Program
  /// `rounding` rounds masters to weights (see write_rounding()). Both were written with
  /// `sharing`. The executor and the list of parameters must outlive the store.
  ParameterStore(Executor& executor, int update, int rounding, const ParameterList& parameters,
                 const StateSharing& sharing = {});

  std::span<const ParameterSpec> parameters() const { return parameters_; }
  /// Returns the tensors of these kinds, in the order of the parameters and of Kept. Biases that
  /// balance routers have no gradient, and moments only with a controller. Parameters that Muon
  /// updates have no second moment.
  std::vector<const KeptTensor*> tensors(std::initializer_list<Kept> kinds) const;
  /// Returns this rank's memory of a parameter's tensor; undefined if it has none of that kind.
  /// Throws InternalError when no parameter has the name.
  Tensor memory(std::string_view parameter, Kept kind) const;
  /// Returns the name of the value in the programs that a tensor is a part of.
  std::string value_name(const KeptTensor& tensor) const;
  /// Returns the description of the elements of the state that each rank holds.
  const StateShard& shard() const { return shard_; }

  /// Draws the first values from the seed (see initialize()).
  void initialize(uint64_t seed, int threads) const;
  /// Rounds the masters to the weights that the programs compute with. Needed after a load.
  void masters_to_weights() const;

 private:
  Executor& executor_;
  int rounding_;
  std::span<const ParameterSpec> parameters_;
  std::span<const ParameterUnit> units_;
  StateShard shard_;
  std::vector<KeptTensor> tensors_;
};

}  // namespace tessera
