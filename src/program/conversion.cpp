// converted() checks a conversion against the value and the table, and returns the distribution
// after it. crossed() is the change between the dense and the expert view of the mesh.

#include "program/conversion.h"

#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "base/words.h"

namespace tessera {
namespace {

/// The rows of conversion.h's table, in its order.
constexpr auto kRules = [] {
  using enum Placement;
  return std::to_array<ConversionRule>({
      // from, to, dual_from, dual_to, movement
      {invariant, replicated, partial, invariant, Movement::nothing},
      {partial, invariant, invariant, replicated, Movement::all_reduce},
      {partial, replicated, partial, replicated, Movement::all_reduce},
      {sharded, replicated, partial, sharded, Movement::all_gather},
      {sharded, invariant, invariant, sharded, Movement::all_gather},
      {invariant, sharded, sharded, invariant, Movement::own_piece},
      {partial, sharded, sharded, replicated, Movement::reduce_scatter},
      {replicated, sharded, sharded, partial, Movement::own_piece},
      {sharded, partial, replicated, sharded, Movement::zeros_around},
      {replicated, partial, replicated, partial, Movement::one_keeps},
      {replicated, invariant, invariant, partial, Movement::nothing},
      {invariant, partial, replicated, invariant, Movement::one_keeps},
      {sharded, sharded, sharded, sharded, Movement::all_to_all},
      {varying, replicated, partial, varying, Movement::all_gather},
      {partial, varying, varying, replicated, Movement::reduce_scatter},
  });
}();

/// Returns whether each row is the only one of its conversion, and the conversion of each row's
/// gradient has exactly one row, too.
constexpr bool rows_are_unique_with_duals() {
  return std::ranges::all_of(kRules, [](const ConversionRule& rule) {
    const auto same = [&](const ConversionRule& other) {
      return other.from == rule.from && other.to == rule.to;
    };
    const auto dual = [&](const ConversionRule& other) {
      return other.from == rule.dual_from && other.to == rule.dual_to;
    };
    return std::ranges::count_if(kRules, same) == 1 && std::ranges::count_if(kRules, dual) == 1;
  });
}
static_assert(rows_are_unique_with_duals());

const ConversionRule* find_rule(Placement from, Placement to) {
  const auto found = std::ranges::find_if(
      kRules, [&](const ConversionRule& rule) { return rule.from == from && rule.to == to; });
  return found == kRules.end() ? nullptr : &*found;
}

const ConversionRule& rule_of(const Conversion& conversion) {
  const ConversionRule* const rule = find_rule(conversion.from, conversion.to.placement);
  TESSERA_CHECK(rule != nullptr, "no conversion {} -> {}", word(conversion.from),
                word(conversion.to.placement));
  return *rule;
}

[[noreturn]] void refuse(const Mesh& mesh, const TypedOperand& value, const Conversion& conversion,
                         const std::string& why) {
  throw DistributionError(
      fmt::format("{} -> {} on {}: '{}' is {}; {}", word(conversion.from),
                  word(conversion.to.placement), mesh.name(conversion.axis), value.name,
                  value.spec.distribution.on(conversion.axis).text(&mesh), why));
}

}  // namespace

Distribution converted(const Mesh& mesh, const TypedOperand& value, const Conversion& conversion) {
  const Distribution& distribution = value.spec.distribution;
  const TypeOnAxis& before = distribution.on(conversion.axis);
  if (mesh.info(conversion.axis).view != distribution.view()) {
    refuse(mesh, value, conversion, "it is of the other view of the mesh");
  }
  // Without a gradient, replicated and invariant mean the same.
  const bool means_invariant = !value.differentiable && before.placement == Placement::replicated &&
                               conversion.from == Placement::invariant;
  if (before.placement != conversion.from && !means_invariant) {
    refuse(mesh, value, conversion, fmt::format("expected {}", word(conversion.from)));
  }
  if (find_rule(conversion.from, conversion.to.placement) == nullptr) {
    refuse(mesh, value, conversion, "there is no such conversion");
  }
  if (before.split() && distribution.order(before.dim).back() != conversion.axis) {
    refuse(mesh, value, conversion,
           fmt::format("dim {} is split over {} inside it; join that first", before.dim,
                       mesh.name(distribution.order(before.dim).back())));
  }
  TypeOnAxis to = conversion.to;
  if (!to.split()) to = {.placement = to.placement};
  // The old split is removed first, so that the new one is the innermost even along the same dim.
  return distribution.with(conversion.axis, {}).with(conversion.axis, to);
}

Distribution crossed(const Mesh& mesh, const TypedOperand& value, MeshView view) {
  const Distribution& before = value.spec.distribution;
  if (before.view() == view) return before;
  const auto axes = mesh.axes_of(before.view());
  const auto refuse_crossing = [&](std::string_view why) {
    throw DistributionError(fmt::format("'{}' cannot cross to the {} view: it is {}; {}",
                                        value.name, view == MeshView::dense ? "dense" : "expert",
                                        before.text(mesh), why));
  };
  const TypeOnAxis& first = before.on(axes[0]);
  const bool one_type =
      std::ranges::all_of(axes, [&](Axis axis) { return before.on(axis) == first; });
  // A value that is not split gets the same type on all axes of the other view.
  if (!first.split()) {
    if (!one_type) refuse_crossing("expected one type over all axes");
    Distribution after(view);
    for (const Axis axis : mesh.axes_of(view)) after = after.with(axis, first);
    return after;
  }
  for (const Axis axis : axes) {
    if (!before.on(axis).split() || before.on(axis).dim != 0) {
      refuse_crossing("expected splits of dim 0 over all axes");
    }
  }
  // Tokens that come back from the expert view get the distribution that they had before.
  if (view == MeshView::dense) {
    const bool same_crossing = one_type && first.pieces.origin != nullptr;
    if (!same_crossing) refuse_crossing("expected the tokens of one crossing");
    return *first.pieces.origin;
  }
  // Tokens that go to the expert view become each rank's own tokens, on all its axes.
  const Pieces own_tokens{.kind = PieceKind::tokens,
                          .origin = std::make_shared<const Distribution>(before)};
  Distribution after(view);
  // with() makes each new split the innermost one, so the outermost axis comes first.
  const std::span<const Axis> levels = mesh.expert_data();
  for (auto level = levels.rbegin(); level != levels.rend(); ++level) {
    after = after.with(*level, varying(0, own_tokens));
  }
  return after.with(mesh.expert(), varying(0, own_tokens));
}

std::span<const ConversionRule> conversion_rules() { return kRules; }

Movement movement(const Conversion& conversion) { return rule_of(conversion).movement; }

Conversion dual(const Conversion& conversion, const TypeOnAxis& before) {
  const ConversionRule& rule = rule_of(conversion);
  TypeOnAxis to{.placement = rule.dual_to};
  if (to.split()) to = before;  // a split value's gradient has its pieces
  return {conversion.axis, rule.dual_from, to};
}

}  // namespace tessera
