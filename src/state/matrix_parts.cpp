#include "state/matrix_parts.h"

#include <utility>

#include <fmt/format.h>

namespace tessera {
namespace {

/// Returns the distribution of a value that has matrices of a parameter in its last dims. The ranks
/// of a chain have different elements of its dim `dim`: `sizes` of them. `type_of_value` maps a
/// split of the parameter to that of the value, with the dim and the pieces that it has there.
template <typename TypeOfValue>
Distribution chain_distribution(const Mesh& mesh, const ParameterSpec& spec,
                                const MatrixChain& chain, int dim, std::vector<int64_t> sizes,
                                TypeOfValue&& type_of_value) {
  const MeshView view = spec.distribution.view();
  Distribution distribution(view);
  for (const Axis axis : mesh.of_view(view)) {
    const TypeOnAxis& type = spec.distribution.on(axis);
    if (!type.split()) distribution = distribution.with(axis, type);
  }
  for (int parameter_dim = 0; parameter_dim < spec.shape.rank(); ++parameter_dim) {
    for (const Axis axis : spec.distribution.order(parameter_dim)) {
      distribution = distribution.with(axis, type_of_value(spec.distribution.on(axis)));
    }
  }
  const TypeOnAxis own = sharded(dim, {.kind = PieceKind::flat, .sizes = std::move(sizes)});
  for (const Axis axis : chain.axes) distribution = distribution.with(axis, own);
  return distribution;
}

/// Returns the distribution of matrices of a chain, [matrices, rows, columns]: `counts` by
/// position.
Distribution whole_matrices(const Mesh& mesh, const ParameterSpec& spec, const MatrixChain& chain,
                            std::vector<int64_t> counts) {
  const int more_dims = 3 - spec.shape.rank();
  return chain_distribution(mesh, spec, chain, 0, std::move(counts), [=](TypeOnAxis type) {
    type.dim += more_dims;
    return type;
  });
}

int64_t elements_of_matrix(const ParameterSpec& spec) {
  return spec.piece_shape.dim(-2) * spec.piece_shape.dim(-1);
}

}  // namespace

MatrixPart whole_part(const ParameterSpec& spec) {
  return {&spec, 0, spec.piece_shape, spec.distribution, ""};
}

std::vector<MatrixPart> run_parts(const Mesh& mesh, std::span<const ParameterSpec> specs,
                                  const MatrixChain& chain) {
  std::vector<MatrixPart> parts;
  for (const MatrixRun& run : chain.runs) {
    const ParameterSpec& spec = specs[run.parameter];
    parts.push_back({&spec,
                     run.first * elements_of_matrix(spec),
                     {run.count, spec.piece_shape.dim(-2), spec.piece_shape.dim(-1)},
                     whole_matrices(mesh, spec, chain, run.counts),
                     ""});
  }
  return parts;
}

MatrixPart cut_matrix(const Mesh& mesh, std::span<const ParameterSpec> specs,
                      const MatrixChain& chain, const MatrixCut& cut) {
  const ParameterSpec& spec = specs[cut.parameter];
  std::vector<int64_t> counts(cut.pieces.size());
  counts[static_cast<size_t>(cut.owner)] = 1;
  return {&spec,
          cut.matrix * elements_of_matrix(spec),
          {1, spec.piece_shape.dim(-2), spec.piece_shape.dim(-1)},
          whole_matrices(mesh, spec, chain, std::move(counts)),
          fmt::format("/{}", cut.matrix)};
}

MatrixPart cut_piece(const Mesh& mesh, std::span<const ParameterSpec> specs,
                     const MatrixChain& chain, const MatrixCut& cut) {
  const ParameterSpec& spec = specs[cut.parameter];
  std::vector<int64_t> sizes;
  for (const ElementRun& piece : cut.pieces) sizes.push_back(piece.length);
  const ElementRun& own = cut.pieces[static_cast<size_t>(chain.position)];
  // The elements of a matrix are dim 1 here, whichever dim of the parameter ranks split.
  const int experts_dim = spec.shape.rank() == 3 ? 0 : -1;
  const Distribution distribution =
      chain_distribution(mesh, spec, chain, 1, std::move(sizes), [=](const TypeOnAxis& type) {
        return type.dim == experts_dim ? type : sharded(1, {.kind = PieceKind::flat});
      });
  return {&spec,
          cut.matrix * elements_of_matrix(spec) + own.begin,
          {1, own.length},
          distribution,
          fmt::format("/{}", cut.matrix)};
}

}  // namespace tessera
