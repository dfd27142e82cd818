#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/tensor_piece.h"
#include "ops/collective/unit_pieces.h"
#include "program/builder.h"
#include "tensor/tensor.h"

namespace tessera {

// The parameters of a model, and the units that they form in a program.

/// The rule for a parameter's first values: normal numbers, or a constant if the deviation is 0.
struct Initialization {
  double deviation = 0;
  double cutoff = 0;  ///< if positive, normal numbers are truncated at so many deviations
  double constant = 0;
  std::optional<double> last_element = {};  ///< if set, its value instead of the constant
};

/// The kind of a parameter, for the rules that treat kinds differently (weight decay, Muon).
/// `vector` is a bias, a scale or a temperature. `router` is the matrix of a router's logits, and
/// `router_hidden` is an earlier matrix of a router. `balance` stands for biases that balance a
/// router's choice; no optimizer changes them (see ChangedBy).
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

/// The part of training that changes the values of a unit. `controller` and `sign` change biases
/// that balance routers (see BiasBalancing).
enum class ChangedBy {
  optimizer,   ///< the update of a step, by gradients
  controller,  ///< each forward pass, by a controller that has moments as AdamW does
  sign,        ///< the end of a step, by the sign of the counts' difference to an even load
};

/// Returns whether a parameter is a hidden matrix, or has a hidden matrix for each expert. Muon is
/// for such parameters. `shape` is the whole parameter's.
bool is_hidden_matrix(ParameterRole role, const Shape& shape);

/// A parameter before it has memory.
struct ParameterSpec {
  std::string name;
  Shape shape;                ///< of the whole parameter
  Distribution distribution;  ///< over the ranks
  Shape piece_shape;          ///< of the piece that this rank holds
  DType dtype = DType::f32;   ///< the dtype in which programs read it
  ParameterRole role = ParameterRole::matrix;
  Initialization initialization;
  std::string unit;         ///< the part of the model that the unit is for: "layers.0.experts"
  int unit_index = -1;      ///< the unit's index in ParameterList::units()
  int64_t unit_offset = 0;  ///< the element of the unit at which the parameter begins
};

/// A unit: parameters that are updated, reduced, sharded or gathered as one piece. They belong to
/// one part of the model (a layer's dense part, a layer's experts, embedding, head) and have the
/// same dtype and flat distribution. Hidden matrices are in units of their own, so that one
/// optimizer updates all of a unit.
///
/// In programs a unit is one flat parameter, and the model's parameters are views of it, one after
/// the other. Each is padded to whole cache lines of the smallest dtype.
struct ParameterUnit {
  /// The name of the flat value: "layers.0.experts/bf16/matrices", "layers.0/bf16/tensor/matrices".
  std::string name;
  DType dtype = DType::f32;
  bool matrices = false;  ///< true if its parameters are hidden matrices
  /// Flat pieces on the axes that split its parameters, whichever dims they split.
  Distribution distribution;
  int64_t elements = 0;  ///< on this rank
  Value value;           ///< in the program that declares it
  /// The distribution of the unit's main gradient, set by ParameterList::note_gradients(). It is
  /// partial on the axes on which ranks use the unit with their own data.
  Distribution gradient_distribution;
  ChangedBy changed_by = ChangedBy::optimizer;
  /// The pipeline stages that have the unit, ascending. Two have the table of a tied head.
  std::vector<int> stages{0};

  bool on_stage(int stage) const { return std::ranges::find(stages, stage) != stages.end(); }
  /// Returns whether it has main gradients.
  bool has_gradients() const { return changed_by == ChangedBy::optimizer; }
  bool has_moments() const { return changed_by != ChangedBy::sign; }
};

/// Returns the names of the masters and moments of a unit's weights, in every program that uses
/// them. Where the weights are the masters themselves, no value has the name of a master.
std::string master_name(const ParameterUnit& unit);
std::string first_moment_name(const ParameterUnit& unit);
std::string second_moment_name(const ParameterUnit& unit);
/// Returns the name of a working copy, given the name of the stored value: a unit that no optimizer
/// changes, or one of its moments. The forward passes of a step read and change the copy.
std::string working_name(std::string_view stored_name);
/// Returns whether the weights are a rounded copy of the masters.
bool is_rounded(const ParameterUnit& unit);

/// Returns the dtype of the matrices of a model with these units, the narrowest. Units of wider
/// numbers, such as norms beside matrices of bf16, are never quantised.
DType dtype_of_matrices(std::span<const ParameterUnit> units);

/// The units of a model of which ranks keep pieces of the weights or of the main gradients. The
/// programs that gather and reduce them need complete units before they declare the first
/// parameter.
struct CutUnits {
  std::vector<ParameterUnit> units;  ///< all units of the model, or of a part of it
  std::vector<UnitPieces> pieces;    ///< by unit; not cut for units that ranks keep whole
  CutUnitOptions options;

  /// Returns whether there are second copies of weights.
  bool has_copies() const {
    return std::ranges::any_of(pieces,
                               [](const UnitPieces& unit) { return unit.secondary.has_value(); });
  }
};

/// Declares and returns the state that has the version of the weights, i32 [1] (use_cut_units()).
Value weights_version(Builder& builder);

/// Fills an f32 or f64 tensor with a piece of a parameter's first values. Each element depends only
/// on the seed, the parameter's name and its index in the whole, so every layout starts with the
/// same model. Throws InternalError if the tensor does not have the piece's shape.
void initialize(const ParameterSpec& spec, uint64_t seed, const TensorPiece& piece,
                const Tensor& values, int threads);

/// The parameters of a model, declared while it is written into a program. All parameters of a unit
/// must be declared before anything uses the unit's size, because each of them enlarges it. Cut
/// units are known before: the first parameter of one declares all cut units of its part of the
/// model, and use_cut_units() writes what gathers them.
class ParameterList {
 public:
  ParameterList() = default;
  /// Begins a list in a program that uses these cut units, or none if null. They must outlive it. A
  /// program that does not train has no use for second copies of weights.
  ParameterList(const CutUnits* cut_units, bool trains) : cut_units_(cut_units), trains_(trains) {}

  /// Declares `name` below the builder's current scope and returns its value in the program. The
  /// value has the shape of the piece that the program's rank holds. Throws Error if the
  /// parameter's shape does not divide into such pieces, and DistributionError if the unit's other
  /// parameters have another flat distribution. Throws InternalError if the unit's ChangedBy is
  /// another.
  Value declare(Builder& builder, std::string_view name, const Shape& shape,
                const Distribution& distribution, DType dtype, ParameterRole role,
                const Initialization& initialization, std::string unit,
                ChangedBy changed_by = ChangedBy::optimizer);
  /// Sets the units' gradient distributions from a program that has its backward pass.
  void note_gradients(const Program& program);
  /// Notes which pipeline stages have each unit. `has` says it of a parameter; all parameters of a
  /// unit are on the same stages.
  void note_stages(int stages,
                   const std::function<bool(int stage, const ParameterSpec& parameter)>& has);

  /// Returns the parameters in the order of their declaration.
  const std::vector<ParameterSpec>& specs() const { return specs_; }
  /// Returns their values in the program, views of their units, in the same order.
  const std::vector<Value>& values() const { return values_; }
  /// Returns the units in the order of their first parameters.
  const std::vector<ParameterUnit>& units() const { return units_; }
  /// Returns the number of elements of all parameters of the whole model, without padding.
  int64_t elements() const;

 private:
  /// A unit while its parameters are being declared.
  struct OpenUnit {
    Value whole;           // the value of which parameters are views
    int64_t elements = 0;  // of the parameters so far
    bool is_cut = false;   // its size is known, and does not grow
  };

  /// Returns the index in units() of a parameter's unit; declares the unit if it is new. Throws
  /// DistributionError if it has another distribution than the parameter needs.
  size_t find_unit(Builder& builder, const std::string& parameter, const std::string& unit,
                   DType dtype, bool matrices, const Distribution& distribution,
                   ChangedBy changed_by);
  /// Declares the cut units of a part of the model and writes their use. Returns whether there are
  /// any.
  bool declare_cut_units(Builder& builder, const std::string& part);

  const CutUnits* cut_units_ = nullptr;
  bool trains_ = false;
  Value version_;               // see weights_version(); null before it is needed
  std::vector<OpenUnit> open_;  // by unit
  std::vector<ParameterSpec> specs_;
  std::vector<Value> values_;
  std::vector<ParameterUnit> units_;
};

}  // namespace tessera
