#pragma once

#include <string>
#include <vector>

#include "checkpoint/hugging_face/architecture.h"
#include "tensor/shape.h"

namespace tessera::hugging_face {

/// How a mixture's expert weights are named: a tensor for each expert and projection, as published
/// checkpoints have them, or one for all experts of a layer, gate above up, as the library's newer
/// classes do.
enum class ExpertNaming { single, fused };

struct NamedShape {
  std::string name;
  Shape shape;
};

/// Elements that stand in a parameter of ours and, in the same order, in a tensor of theirs.
struct Segment {
  size_t parameter;  ///< index in WeightMap::parameters
  int64_t parameter_begin;
  size_t tensor;  ///< index in WeightMap::tensors
  int64_t tensor_begin;
  int64_t count;
};

/// How the parameters of a model and the tensors of a checkpoint of transformers make up each
/// other. Import and export both go by it: every element of the one stands in one place of the
/// other.
struct WeightMap {
  std::vector<NamedShape> parameters;
  std::vector<NamedShape> tensors;
  /// By parameter, in the order of its elements.
  std::vector<std::vector<Segment>> of_parameter;
  /// By tensor, in the order of its elements.
  std::vector<std::vector<Segment>> of_tensor;
};

/// The number of tensors of weight_map(), found without making it: a configuration of a few lines
/// may ask for billions.
int64_t count_tensors(const Architecture& architecture, const ModelConfig& config,
                      ExpertNaming naming);

WeightMap weight_map(const Architecture& architecture, const ModelConfig& config,
                     ExpertNaming naming);

}  // namespace tessera::hugging_face
