#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "program/builder.h"
#include "tensor/tensor.h"

namespace tessera {

/// How a parameter's first values are drawn: normal with this deviation (truncated at `cutoff`
/// deviations where that is positive), or a constant where the deviation is zero.
struct Initialization {
  double deviation = 0;
  double cutoff = 0;
  double constant = 0;
};

/// What a parameter is, for the rules that treat kinds differently (weight decay, Muon).
enum class ParameterRole { matrix, expert, embedding, head, router, norm };

/// A parameter before it has memory.
struct ParameterSpec {
  std::string name;
  Shape shape;
  DType dtype = DType::f32;  ///< in which it is computed with
  ParameterRole role = ParameterRole::matrix;
  Initialization initialization;
  std::string unit;         ///< parameters of one unit are stored and sharded together
  int unit_index = -1;      ///< its place in ParameterList::units()
  int64_t unit_offset = 0;  ///< of its first element in the unit's flat memory
};

/// Parameters of one unit and one type (a layer's dense part, a layer's experts, embedding, head),
/// flattened one behind another, each padded to whole cache lines of the smallest type: what is
/// updated, reduced, sharded or gathered as one piece. In programs it is one parameter, of which
/// the model's parameters are views.
struct ParameterUnit {
  std::string name;  ///< of the flat value: "layers.0.experts/bf16"
  DType dtype = DType::f32;
  int64_t elements = 0;
  Value value;  ///< in the program that declares it
};

/// The names of what is kept beside a unit's weights, in every program that uses it. Where the
/// weights are of the accumulation type they are the masters themselves.
std::string master_name(const ParameterUnit& unit);
std::string first_moment_name(const ParameterUnit& unit);
std::string second_moment_name(const ParameterUnit& unit);
/// Whether the weights are a rounded copy of the masters.
bool rounds(const ParameterUnit& unit);

/// Fills an f32 or f64 tensor with a parameter's first values. Each element depends on the seed,
/// the parameter's name and its own position alone, so that every layout starts with the same
/// model.
void initialize(const ParameterSpec& spec, uint64_t seed, const Tensor& values, int threads);

/// Declares parameters while a model is written into a program, and remembers what they are. All of
/// a unit are declared before anything uses its size: a unit grows with each of them.
class ParameterList {
 public:
  /// Declares `name` below the builder's current scope and gives its value in the program.
  Value declare(Builder& builder, std::string_view name, const Shape& shape, DType dtype,
                ParameterRole role, const Initialization& initialization, std::string unit);

  /// In the order of their declaration.
  const std::vector<ParameterSpec>& specs() const { return specs_; }
  /// Their values in the program, views of their units, in the same order.
  const std::vector<Value>& values() const { return values_; }
  /// In the order of their first parameters.
  const std::vector<ParameterUnit>& units() const { return units_; }
  /// Entries of all parameters together.
  int64_t elements() const;

 private:
  /// The unit's place in the list; declared where it is new.
  size_t unit_of(Builder& builder, const std::string& unit, DType dtype);

  std::vector<ParameterSpec> specs_;
  std::vector<Value> values_;
  std::vector<ParameterUnit> units_;
};

}  // namespace tessera
