#include "state/matrix_parts.h"

#include <utility>

#include <fmt/format.h>

namespace tessera {
namespace {

/// How a value lies that has matrices of a parameter in its last dims, where ranks of a chain have
/// different elements of dim `dim`, so many each. `place` says which dim of the value a dim of the
/// parameter is in, and the type of its pieces there.
template <typename Place>
Distribution lies_in_chain(const Mesh& mesh, const ParameterSpec& spec, const MatrixChain& chain,
                           int dim, std::vector<int64_t> sizes, Place&& place) {
  const MeshView view = spec.distribution.view();
  Distribution lies(view);
  for (const Axis axis : mesh.of_view(view)) {
    const TypeOnAxis& type = spec.distribution.on(axis);
    if (!type.split()) lies = lies.with(axis, type);
  }
  for (int of_parameter = 0; of_parameter < spec.shape.rank(); ++of_parameter) {
    for (const Axis axis : spec.distribution.order(of_parameter)) {
      lies = lies.with(axis, place(spec.distribution.on(axis)));
    }
  }
  const TypeOnAxis own = sharded(dim, {.kind = PieceKind::flat, .sizes = std::move(sizes)});
  for (const Axis axis : chain.axes) lies = lies.with(axis, own);
  return lies;
}

/// The same of [matrices, rows, columns].
Distribution whole_matrices(const Mesh& mesh, const ParameterSpec& spec, const MatrixChain& chain,
                            std::vector<int64_t> counts) {
  const int more_dims = 3 - spec.shape.rank();
  return lies_in_chain(mesh, spec, chain, 0, std::move(counts), [=](TypeOnAxis type) {
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
  // Rows and columns are elements of dim 1 here, whatever dim of the parameter ranks split.
  const int experts_dim = spec.shape.rank() == 3 ? 0 : -1;
  const Distribution lies =
      lies_in_chain(mesh, spec, chain, 1, std::move(sizes), [=](const TypeOnAxis& type) {
        return type.dim == experts_dim ? type : sharded(1, {.kind = PieceKind::flat});
      });
  return {&spec,
          cut.matrix * elements_of_matrix(spec) + own.place,
          {1, own.length},
          lies,
          fmt::format("/{}", cut.matrix)};
}

}  // namespace tessera
