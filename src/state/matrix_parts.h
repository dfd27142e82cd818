#pragma once

#include <string>
#include <vector>

#include "model/parameter.h"
#include "state/matrix_shares.h"

namespace tessera {

/// Consecutive elements of a parameter that an update takes as one value.
struct MatrixPart {
  const ParameterSpec* spec = nullptr;
  int64_t first = 0;  ///< of this rank's piece of the parameter
  Shape shape;        ///< [rows, columns], [matrices, rows, columns], or [1, elements]
  Distribution lies;
  std::string mark;  ///< after the parameter's name
};

/// All that this rank has of a parameter.
MatrixPart whole_part(const ParameterSpec& spec);

/// The whole matrices of a chain that this rank has states of.
std::vector<MatrixPart> run_parts(const Mesh& mesh, std::span<const ParameterSpec> specs,
                                  const MatrixChain& chain);

/// A matrix that is cut, once its owner has all of it: [1, rows, columns].
MatrixPart cut_matrix(const Mesh& mesh, std::span<const ParameterSpec> specs,
                      const MatrixChain& chain, const MatrixCut& cut);
/// This rank's piece of it: [1, elements].
MatrixPart cut_piece(const Mesh& mesh, std::span<const ParameterSpec> specs,
                     const MatrixChain& chain, const MatrixCut& cut);

}  // namespace tessera
