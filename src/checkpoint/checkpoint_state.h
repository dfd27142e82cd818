#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>

#include "tensor/tensor.h"

namespace tessera {

/// A file that a checkpoint carries beside its tensors, such as a tokenizer's.
struct CarriedFile {
  std::string name;
  std::string content;

  bool operator==(const CarriedFile&) const = default;
};

/// One tensor to save, or to load into. The pair (group, name) identifies it; each group has files
/// of its own, and a name may occur in several groups ("parameters", "optimizer").
struct NamedTensor {
  std::string group;
  std::string name;
  Tensor tensor;

  /// "GROUP/NAME", as messages have it.
  std::string label() const { return group + "/" + name; }
};

/// A number or a text that is saved and comes back exactly (a double bit for bit, but for the
/// payload of a NaN).
using StateValue = std::variant<int64_t, double, std::string>;

/// What a checkpoint holds beside tensors.
struct CheckpointState {
  int64_t step = 0;                          ///< steps done
  std::map<std::string, StateValue> values;  ///< data position, tokens seen, seed, ...
  std::string config;                        ///< the run's resolved TOML; the file config.toml
  std::string created_by = "tessera";        ///< the program and its version

  /// One of values. Throws Error naming it when it is missing or of another type.
  int64_t integer(const std::string& name) const;
  double number(const std::string& name) const;
  const std::string& text(const std::string& name) const;
};

}  // namespace tessera
