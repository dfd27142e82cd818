#pragma once

#include <string>

#include <fmt/format.h>

#include "base/error.h"
#include "base/words.h"
#include "state/kept_tensor.h"

namespace tessera {

// The names of kept tensors in a checkpoint.

/// Returns the group of a tensor: "parameters" for masters, "optimizer" for moments.
inline std::string saved_group(const KeptTensor& tensor) {
  TESSERA_CHECK(tensor.kind >= Kept::master, "{} is not saved", tensor.name());
  return tensor.kind == Kept::master ? "parameters" : "optimizer";
}

/// Returns the name within the group: the parameter's name, followed for moments by the moment's:
/// "layers.0.attention.query.first_moment".
inline std::string saved_name(const KeptTensor& tensor) {
  const std::string& parameter = tensor.parameter->name;
  return tensor.kind == Kept::master ? parameter
                                     : fmt::format("{}.{}", parameter, word(tensor.kind));
}

}  // namespace tessera
