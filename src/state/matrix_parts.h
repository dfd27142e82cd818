#pragma once

#include <string>
#include <vector>

#include "model/parameter.h"
#include "state/matrix_shares.h"

namespace tessera {

/// Consecutive elements of a parameter that an update takes as one value.
struct MatrixPart {
  const ParameterSpec* spec = nullptr;
  int64_t first = 0;  ///< the offset in this rank's piece of the parameter
  Shape shape;        ///< [rows, columns], [matrices, rows, columns], or [1, elements]
  Distribution distribution;
  std::string suffix;  ///< added to the parameter's name in the name of the value
};

/// Returns all that this rank has of a parameter.
MatrixPart whole_part(const ParameterSpec& spec);

/// Returns the matrices of a chain of which this rank has all states, a part for each run.
std::vector<MatrixPart> run_parts(const Mesh& mesh, std::span<const ParameterSpec> specs,
                                  const MatrixChain& chain);

/// Returns a cut matrix as its owner has it when it has received all pieces: [1, rows, columns].
MatrixPart cut_matrix(const Mesh& mesh, std::span<const ParameterSpec> specs,
                      const MatrixChain& chain, const MatrixCut& cut);
/// Returns this rank's piece of a cut matrix: [1, elements].
MatrixPart cut_piece(const Mesh& mesh, std::span<const ParameterSpec> specs,
                     const MatrixChain& chain, const MatrixCut& cut);

}  // namespace tessera
