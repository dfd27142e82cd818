#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "program/builder.h"

namespace tessera {

/// The classes that a rank has of a head's vocabulary, and the axis over whose ranks it is split.
struct VocabularyPart {
  int64_t first = 0;         ///< the rank's first class; targets count classes of the whole
  int64_t all = 0;           ///< classes of all ranks
  int ranks = 1;             ///< that share the vocabulary
  std::optional<Axis> axis;  ///< none if the rank has all classes
  std::string axis_name;

  /// The place of a target among the rank's `classes`; -1 if it is not one of them.
  int32_t own(int32_t target, int64_t classes) const {
    const int64_t place = target - first;
    return target >= 0 && place >= 0 && place < classes ? static_cast<int32_t>(place) : -1;
  }
};

/// The part that the program's rank has of a head's weight [vocabulary, hidden]. Throws Error if
/// several axes of more than one rank split its rows, or if they are not consecutive.
VocabularyPart vocabulary_part(const Program& program, Value weight);

/// The types, on an axis that splits the vocabulary, of linear_cross_entropy()'s outputs; none on
/// any other axis, where its labels say them. `inputs` are those of x, the weight, the targets and,
/// if there are gradients, the seed. Throws DistributionError if they do not fit.
std::optional<std::vector<TypeOnAxis>> split_vocabulary_types(std::span<const TypeOnAxis> inputs,
                                                              bool gradients);

/// What the ranks that share a vocabulary send for the loss of so many tokens: the largest logit of
/// each, then its sum of exponentials and its target's logit.
std::vector<WireBytes> vocabulary_wire_bytes(const VocabularyPart& part, int64_t tokens,
                                             int64_t number_bytes);

}  // namespace tessera
