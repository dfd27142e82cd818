#pragma once

#include <string>
#include <vector>

#include "checkpoint/hugging_face/architecture.h"
#include "tensor/shape.h"

namespace tessera::hugging_face {

/// The tensors of a mixture's experts. `single`: one tensor for each expert and projection, as in
/// published checkpoints. `fused`, as in the library's newer classes and always in ZAYA1: a tensor
/// has all experts of a layer, and `gate` and `up` share one, in which each expert's rows of `gate`
/// precede its rows of `up`.
enum class ExpertNaming { single, fused };

/// A parameter or a tensor: its name and its shape.
struct NamedShape {
  std::string name;
  Shape shape;
};

/// Consecutive elements of one of our parameters that a tensor of transformers holds in the same
/// order.
struct MappedSegment {
  size_t parameter;  ///< index in WeightMap::parameters
  int64_t parameter_begin;
  size_t tensor;  ///< index in WeightMap::tensors
  int64_t tensor_begin;
  int64_t count;
};

/// Maps the parameters of a model to the tensors of a transformers checkpoint. Every element of a
/// parameter corresponds to exactly one element of a tensor, and the reverse. Import and export
/// both use this map.
struct WeightMap {
  std::vector<NamedShape> parameters;
  std::vector<NamedShape> tensors;
  /// The segments of each parameter, in the order of its elements.
  std::vector<std::vector<MappedSegment>> parameter_segments;
  /// The segments of each tensor, in the order of its elements.
  std::vector<std::vector<MappedSegment>> tensor_segments;
};

/// Returns the number of tensors of weight_map() without making the map. A configuration of a few
/// lines may need billions of tensors.
int64_t count_tensors(const Architecture& architecture, const ModelConfig& config,
                      ExpertNaming naming);

/// Returns the map of a model. Every parameter of the model must have a name in transformers. That
/// is so if `architecture` is architecture_of(config).
WeightMap weight_map(const Architecture& architecture, const ModelConfig& config,
                     ExpertNaming naming);

}  // namespace tessera::hugging_face
