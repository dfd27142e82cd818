#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "engine/executor.h"
#include "model/parameter.h"
#include "state/state_shard.h"
#include "state/update_program.h"

namespace tessera {

/// A tensor of a parameter that is kept between steps: this rank's pieces and their memory.
struct KeptTensor {
  const ParameterSpec* parameter = nullptr;
  size_t index = 0;  ///< the index of the parameter in its list
  Kept kind = Kept::weight;
  DType dtype = DType::f32;
  /// Ranks whose coordinates agree on all axes that split the tensor hold the same elements.
  Distribution distribution;
  std::vector<TensorPiece> pieces;  ///< the pieces of the whole that this rank holds
  /// The elements of the pieces, one piece after the other. The shape is that of the only piece, or
  /// [elements] where ranks share the tensor out. Undefined if this rank's stage has none of it.
  Tensor memory;

  /// Returns the tensor's name in messages: "first_moment:layers.0.attention.query". A weight has
  /// the name of its parameter.
  std::string name() const;
  /// Returns the group of the tensor in a checkpoint: "parameters" for masters, "optimizer" for
  /// moments. Throws InternalError for other kinds, which are not saved.
  std::string saved_group() const;
  /// Returns the name of the tensor within that group: the parameter's name, followed for moments
  /// by the moment's: "layers.0.attention.query.first_moment".
  std::string saved_name() const;

  /// Calls visit(piece, memory) for each piece that this rank holds, in the piece's shape.
  template <typename Visit>
  void for_each_piece(Visit&& visit) const {
    int64_t offset = 0;
    for (const TensorPiece& piece : pieces) {
      visit(piece, memory.reshape({memory.elements()}).view(offset, piece.shape()));
      offset += piece.shape().elements();
    }
    TESSERA_CHECK(offset == memory.elements(), "{} has {} elements in pieces of {}", name(),
                  memory.elements(), offset);
  }
};

/// The training state of this rank, in the memory that the plan gave it. Loading, saving, first
/// values, checks of copies and of NaN, and verification all go through tensors(). The list of
/// tensors does not change after the store is made; their elements do. Functions that return memory
/// wait for the work of all lanes first (Executor::synchronize()).
class ParameterStore {
 public:
  /// Finds the tensors of the model's `parameters`, which `update` updates. `update_number` and
  /// `rounding_number` are the numbers of that program and of the one that rounds masters to
  /// weights (see write_rounding()) in the executor's list. All arguments must outlive the store.
  ParameterStore(Executor& executor, const UpdateProgram& update, int update_number,
                 int rounding_number, const ParameterList& parameters);

  std::span<const ParameterSpec> parameters() const { return parameters_; }
  /// Returns the tensors of these kinds that this rank's pipeline stage has, ordered by parameter
  /// and then by kind. Biases that balance routers have no gradient, and have moments only with
  /// ChangedBy::controller. Parameters that Muon updates have no second moment.
  std::vector<const KeptTensor*> tensors(std::initializer_list<Kept> kinds) const;
  /// Returns those of all stages, in the same order. The other stages' tensors have no memory.
  std::vector<const KeptTensor*> tensors_of_all_stages(std::initializer_list<Kept> kinds) const;
  /// Returns this rank's memory of a parameter's tensor, or an undefined Tensor if the parameter
  /// has no tensor of that kind. Throws InternalError if no parameter has the name.
  Tensor memory(std::string_view parameter, Kept kind) const;
  /// Returns the name of the update program's value of which a tensor is a part.
  std::string value_name(const KeptTensor& tensor) const;
  /// Returns the pipeline stages that have a tensor, ascending.
  const std::vector<int>& stages(const KeptTensor& tensor) const {
    return units_[static_cast<size_t>(tensor.parameter->unit_index)].stages;
  }
  /// Returns the sum over this rank's micro-batches since the step began.
  Tensor sum(const StepSum& sum) const { return executor_.tensor(sum.name, update_number_); }
  /// Returns the sum over the micro-batches of all ranks, as the last update has computed it.
  Tensor total(const StepSum& sum) const {
    return executor_.tensor(update_.totals.at(sum.name), update_number_);
  }
  const StateShard& shard() const { return shard_; }

  /// Draws the first values from the seed (see initialize()).
  void initialize(uint64_t seed, int threads) const;
  /// Forgets the rounding errors of gradients (kErrorPrefix). A checkpoint has none, so a run
  /// that goes on and one that is resumed forget them alike.
  void forget_errors() const;
  /// Rounds the masters to the weights that the programs compute with. Must follow a load.
  void masters_to_weights() const;

 private:
  Tensor memory_of(const KeptTensor& tensor) const;

  Executor& executor_;
  const UpdateProgram& update_;
  int update_number_;
  int rounding_number_;
  std::span<const ParameterSpec> parameters_;
  std::span<const ParameterUnit> units_;
  StateShard shard_;
  std::vector<KeptTensor> tensors_;
};

}  // namespace tessera
