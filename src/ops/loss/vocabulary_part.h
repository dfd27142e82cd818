#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "program/builder.h"

namespace tessera {

/// The part of a head's vocabulary that a rank has, and the mesh axis that splits the vocabulary.
struct VocabularyPart {
  int64_t first = 0;  ///< the rank's first class; targets are indices in the whole vocabulary
  int64_t all = 0;    ///< the number of classes of all ranks
  int ranks = 1;      ///< the number of ranks that share the vocabulary
  std::optional<Axis> axis;  ///< none if the rank has all classes

  /// Returns a target as an index among the rank's `classes`, or -1 if it is not one of them.
  int32_t rank_class(int32_t target, int64_t classes) const {
    const int64_t index = target - first;
    return target >= 0 && index >= 0 && index < classes ? static_cast<int32_t>(index) : -1;
  }
};

/// Returns the part of a head's weight [vocabulary, hidden] that the program's rank has. Throws
/// Error if several axes of more than one rank split the weight's rows, or if the rank's rows are
/// not consecutive.
VocabularyPart vocabulary_part(const Program& program, Value weight);

/// Returns the types of linear_cross_entropy()'s outputs on an axis that splits the vocabulary.
/// Returns nullopt on another axis, where the labels give the types. `inputs` are the types of x,
/// the weight, the targets and, if there are gradients, the seed. Throws DistributionError if they
/// do not fit.
std::optional<std::vector<TypeOnAxis>> split_vocabulary_types(std::span<const TypeOnAxis> inputs,
                                                              bool gradients);

}  // namespace tessera
