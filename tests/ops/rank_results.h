#pragma once

#include <algorithm>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "comm/piece_indices.h"
#include "support/mesh_programs.h"
#include "support/run_program.h"

namespace tessera::testing {

/// How the values of an embedding or a head lie: tokens are split over data, and the rows of the
/// vocabulary over tensor.
struct HeadLayout {
  explicit HeadLayout(const Mesh& mesh, int64_t vocabulary = 0)
      : t(mesh.tensor()), d(mesh.data()[0]) {
    if (vocabulary > 0) pieces = nearly_even(vocabulary, mesh.size(t));
  }
  Distribution tokens(const TypeOnAxis& on_tensor) const {
    return Distribution().with(d, sharded(0)).with(t, on_tensor);
  }
  Distribution vocabulary() const {
    return Distribution().with(t, sharded(0, pieces)).with(d, replicated());
  }
  /// The shape of a rank's rows of a table [rows, columns].
  Shape rows_of(const Program& program, const Shape& table) const {
    return TensorPiece(program.mesh(), vocabulary(), table, program.rank()).shape();
  }
  Axis t, d;
  Pieces pieces;  // of the vocabulary
};

/// Names a value that is read after the run.
inline void mark(Builder& builder, Value value, const std::string& name) {
  builder.name(value, name);
  builder.output(value);
}

/// The logical tensors of a program, by name.
using Wholes = std::map<std::string, Tensor>;

inline Tensor ids_of(std::vector<int32_t> ids) {
  const Tensor tensor({std::ssize(ids)}, DType::i32);
  std::ranges::copy(ids, tensor.data<int32_t>());
  return tensor;
}

/// What comes out, joined, by name.
using RankResults = std::map<std::string, std::vector<double>>;

inline RankResults results_of(const MeshRun& run, std::initializer_list<const char*> names) {
  RankResults results;
  for (const char* name : names) results[name] = numbers_of(run.whole(name));
  return results;
}

inline void expect_results(const RankResults& actual, const RankResults& expected,
                           const Tolerance& tolerance) {
  for (const auto& [name, numbers] : expected) {
    expect_close(actual.at(name), numbers, tolerance, name);
  }
}

/// Meshes on which a program is compared with that of one rank.
inline const std::vector<MeshSizes>& head_layouts() {
  static const std::vector<MeshSizes> all{
      {.tensor = 2}, {.tensor = 4}, {.data = {2}}, {.tensor = 2, .data = {2}}};
  return all;
}

}  // namespace tessera::testing
