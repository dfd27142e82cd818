#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/tensor_piece.h"
#include "program/builder.h"
#include "tensor/tensor.h"

namespace tessera {

/// The rule for a parameter's first values. They are normal with this deviation (truncated at
/// `cutoff` deviations if that is positive), or `constant` if the deviation is zero. `last`, if
/// set, replaces the constant of the last element.
struct Initialization {
  double deviation = 0;
  double cutoff = 0;
  double constant = 0;
  std::optional<double> last = {};
};

/// The kind of a parameter, for the rules that treat kinds differently (weight decay, Muon). A
/// vector is a bias, a scale or a temperature. `router` is the matrix of a router's logits, and
/// router_hidden is an earlier matrix of a router. `balance` are biases of a router's choice, which
/// the forward pass changes and no optimizer.
enum class ParameterRole {
  matrix,
  expert,
  embedding,
  head,
  router,
  router_hidden,
  norm,
  vector,
  convolution,
  balance
};

/// The part of training that changes the values of a unit: the optimizer, by gradients; the forward
/// pass, by a controller that has moments as AdamW does; or the end of a step, by the sign of the
/// difference of its token counts to an even load. The last two change biases that balance routers.
enum class ChangedBy { optimizer, controller, sign };

/// Returns whether a parameter is a hidden matrix, or one of each expert: those that Muon is for.
/// `shape` is that of the whole.
bool is_hidden_matrix(ParameterRole role, const Shape& shape);

/// A parameter before it has memory.
struct ParameterSpec {
  std::string name;
  Shape shape;                ///< of the whole parameter
  Distribution distribution;  ///< over the ranks
  Shape piece_shape;          ///< of the piece that this rank holds
  DType dtype = DType::f32;   ///< the one that programs compute with
  ParameterRole role = ParameterRole::matrix;
  Initialization initialization;
  std::string unit;         ///< parameters of one unit are stored and sharded together
  int unit_index = -1;      ///< its index in ParameterList::units()
  int64_t unit_offset = 0;  ///< offset of its first element in the unit's flat memory
};

/// The parameters of one unit (a layer's dense part, a layer's experts, embedding, head) that have
/// one dtype and the same flat distribution. They are flattened one after another, each padded to
/// whole cache lines of the smallest dtype. They are updated, reduced, sharded or gathered as one
/// piece. In programs a unit is one parameter, and the model's parameters are views of it.
///
/// Hidden matrices are in units of their own, so that one optimizer updates all of a unit.
struct ParameterUnit {
  /// The name of the flat value: "layers.0.experts/bf16/matrices", "layers.0/bf16/tensor/matrices".
  std::string name;
  DType dtype = DType::f32;
  bool matrices = false;  ///< true if its parameters are hidden matrices
  /// Flat pieces over the axes that split its parameters, along whatever dims.
  Distribution distribution;
  int64_t elements = 0;  ///< on this rank
  Value value;           ///< in the program that declares it
  /// The distribution of its main gradient: partial over the axes on which ranks used the unit on
  /// their own data. It is known once the program has its backward pass.
  Distribution gradient_distribution;
  ChangedBy changed_by = ChangedBy::optimizer;

  /// Returns whether it has main gradients.
  bool has_gradients() const { return changed_by == ChangedBy::optimizer; }
  bool has_moments() const { return changed_by != ChangedBy::sign; }
};

/// Returns the names of the masters and moments of a unit's weights, in every program that uses
/// them. If the weights have the accumulation dtype, they are the masters themselves.
std::string master_name(const ParameterUnit& unit);
std::string first_moment_name(const ParameterUnit& unit);
std::string second_moment_name(const ParameterUnit& unit);
/// Returns the name of the working copy of a unit, or of its moments. The forward passes of a step
/// read and change that copy, if no optimizer changes the unit.
std::string working_name(std::string_view kept);
/// Returns whether the weights are a rounded copy of the masters.
bool rounds(const ParameterUnit& unit);

/// Fills an f32 or f64 tensor with a piece of a parameter's first values. Each element depends only
/// on the seed, the parameter's name and its index in the whole, so every layout starts with the
/// same model. Throws InternalError if the tensor does not have the piece's shape.
void initialize(const ParameterSpec& spec, uint64_t seed, const TensorPiece& piece,
                const Tensor& values, int threads);
/// Fills a tensor with the first values of the whole parameter.
void initialize(const ParameterSpec& spec, uint64_t seed, const Tensor& values, int threads);

/// The parameters of a model, declared while it is written into a program. All parameters of a unit
/// must be declared before anything uses the unit's size, because each of them enlarges it.
class ParameterList {
 public:
  /// Declares `name` below the builder's current scope and returns its value in the program. The
  /// value has the shape of the piece that the program's rank holds. Throws Error if the
  /// parameter's shape does not divide into such pieces, and DistributionError if the unit's other
  /// parameters have another flat distribution. Throws InternalError if the unit is changed by
  /// another part of training.
  Value declare(Builder& builder, std::string_view name, const Shape& shape,
                const Distribution& distribution, DType dtype, ParameterRole role,
                const Initialization& initialization, std::string unit,
                ChangedBy changed_by = ChangedBy::optimizer);
  /// Sets the units' gradient distributions from a program that has its backward pass.
  void note_gradients(const Program& program);

  /// Returns the parameters in the order of their declaration.
  const std::vector<ParameterSpec>& specs() const { return specs_; }
  /// Returns their values in the program, views of their units, in the same order.
  const std::vector<Value>& values() const { return values_; }
  /// Returns the units in the order of their first parameters.
  const std::vector<ParameterUnit>& units() const { return units_; }
  /// Returns the number of elements of all parameters together, without padding, of the whole
  /// model.
  int64_t elements() const;

 private:
  /// Returns the unit's index in the list; declares the unit if it is new. Throws DistributionError
  /// if it has another distribution than the parameter needs.
  size_t unit_of(Builder& builder, const std::string& parameter, const std::string& unit,
                 DType dtype, bool matrices, const Distribution& distribution,
                 ChangedBy changed_by);

  std::vector<ParameterSpec> specs_;
  std::vector<Value> values_;
  std::vector<ParameterUnit> units_;
};

}  // namespace tessera
