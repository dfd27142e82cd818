#include "ops/loss/vocabulary_part.h"

#include "base/error.h"
#include "comm/piece_indices.h"
#include "ops/support.h"

namespace tessera {
namespace {

[[noreturn]] void refuse(std::string_view operand, const TypeOnAxis& type,
                         std::string_view expected) {
  throw DistributionError(
      fmt::format("linear_cross_entropy: the vocabulary is split; {} must be {}, not {}", operand,
                  expected, type.text()));
}

}  // namespace

VocabularyPart vocabulary_part(const Program& program, Value weight) {
  const Mesh& mesh = program.mesh();
  const Spec& spec = program.spec(weight);
  VocabularyPart part{.first = first_row(program, weight),
                      .all = logical_extent(mesh, spec.distribution, 0, spec.shape[0]),
                      .axis = {}};
  for (const Axis axis : spec.distribution.order(0)) {
    if (mesh.size(axis) == 1) continue;
    if (part.axis) {
      throw Error(
          "linear_cross_entropy: '{}' is split over {} ranks of {} and {} of {}; the vocabulary "
          "may be split over one axis",
          program.info(weight).name, part.ranks, mesh.name(*part.axis), mesh.size(axis),
          mesh.name(axis));
    }
    part.axis = axis;
    part.ranks = mesh.size(axis);
  }
  return part;
}

std::optional<std::vector<TypeOnAxis>> split_vocabulary_types(std::span<const TypeOnAxis> inputs,
                                                              bool gradients) {
  const TypeOnAxis &x = inputs[0], &weight = inputs[1], &targets = inputs[2];
  if (weight.placement != Placement::sharded || weight.dim != 0) return std::nullopt;
  const PieceKind kind = weight.pieces.kind;
  const bool consecutive = kind == PieceKind::even || kind == PieceKind::uneven;
  if (!consecutive) refuse("the weight", weight, "in consecutive pieces");
  if (x.placement != Placement::replicated) refuse("x", x, "replicated");
  if (!targets.same_on_ranks()) refuse("the targets", targets, "invariant or replicated");
  std::vector<TypeOnAxis> outputs(3, invariant());
  if (!gradients) return outputs;
  const TypeOnAxis& seed = inputs[3];
  if (seed.placement != Placement::invariant) refuse("the loss's gradient", seed, "invariant");
  outputs.push_back(partial());
  outputs.push_back(weight);
  return outputs;
}

}  // namespace tessera
