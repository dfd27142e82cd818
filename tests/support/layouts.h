#pragma once

#include <vector>

#include "comm/mesh.h"

namespace tessera::testing {

/// Meshes of 2 to `most_ranks` ranks. Each of the axes tensor, context and data has several ranks
/// alone, with each other one, and with both others, each a power of two. Over the same ranks lies
/// each number of experts' ranks up to 8 that divides them: so experts share the ranks of each
/// axis and of each pair, in part and wholly. The first are those without experts' ranks.
inline std::vector<MeshSizes> every_layout(int most_ranks) {
  constexpr int kMostExpertRanks = 8;
  std::vector<MeshSizes> result;
  for (int expert = 1; expert <= kMostExpertRanks; expert *= 2) {
    for (int tensor = 1; tensor <= 4; tensor *= 2) {
      for (int context = 1; context <= 4; context *= 2) {
        for (int data = 1; data <= 8; data *= 2) {
          const int ranks = tensor * context * data;
          if (ranks == 1 || ranks > most_ranks || ranks % expert != 0) continue;
          result.push_back(
              {.tensor = tensor, .context = context, .data = {data}, .expert = expert});
        }
      }
    }
  }
  return result;
}

}  // namespace tessera::testing
