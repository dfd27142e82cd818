#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>

#include "comm/tensor_piece.h"
#include "tensor/tensor.h"

namespace tessera {

/// A file that a checkpoint holds beside its tensors, such as a tokenizer's.
struct CarriedFile {
  std::string name;
  std::string content;

  bool operator==(const CarriedFile&) const = default;
};

/// A tensor to save, or to load into. The pair (group, name) identifies it: a name may occur in
/// several groups ("parameters", "optimizer"). Each group has files of its own.
struct NamedTensor {
  std::string group;
  std::string name;
  Tensor tensor;
  /// Only for loading: the piece of the saved tensor that `tensor` holds; none: all of it.
  std::optional<TensorPiece> piece = {};

  /// Returns the shape of the saved tensor.
  const Shape& shape() const { return piece ? piece->whole() : tensor.shape(); }
  /// Returns "GROUP/NAME" for messages.
  std::string label() const { return group + "/" + name; }
};

/// A number or a text in a checkpoint's state. It is restored exactly: a double bit for bit, except
/// for the payload of a NaN.
using StateValue = std::variant<int64_t, double, std::string>;

/// The content of a checkpoint beside its tensors.
struct CheckpointState {
  int64_t step = 0;                          ///< number of steps done
  std::map<std::string, StateValue> values;  ///< data position, tokens seen, seed, ...
  std::string config;                        ///< the run's resolved TOML, stored as config.toml
  std::string created_by = "tessera";        ///< the program and its version

  /// Return one of `values`. Throw Error that names it when it is missing or of another type.
  int64_t integer(const std::string& name) const;
  double number(const std::string& name) const;
  const std::string& text(const std::string& name) const;
};

}  // namespace tessera
