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
  std::string unit;  ///< parameters of one unit are stored and sharded together
};

/// Fills an f32 or f64 tensor with a parameter's first values. Each element depends on the seed,
/// the parameter's name and its own position alone, so that every layout starts with the same
/// model.
void initialize(const ParameterSpec& spec, uint64_t seed, const Tensor& values, int threads);

/// Declares parameters while a model is written into a program, and remembers what they are.
class ParameterList {
 public:
  /// Declares `name` below the builder's current scope and gives its value in the program.
  Value declare(Builder& builder, std::string_view name, const Shape& shape, DType dtype,
                ParameterRole role, const Initialization& initialization, std::string unit);

  /// In the order of their declaration.
  const std::vector<ParameterSpec>& specs() const { return specs_; }
  /// Their values in the program, in the same order.
  const std::vector<Value>& values() const { return values_; }
  /// Entries of all parameters together.
  int64_t elements() const;

 private:
  std::vector<ParameterSpec> specs_;
  std::vector<Value> values_;
};

}  // namespace tessera
