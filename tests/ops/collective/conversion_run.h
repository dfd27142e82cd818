#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "engine/differentiate.h"
#include "ops/collective/convert.h"
#include "ops/collective/plain_pieces.h"
#include "ops/elementwise/elementwise.h"
#include "support/mesh_programs.h"

namespace tessera::testing {

/// A conversion of a matrix that lies like `before`.
struct ConversionCase {
  Distribution before;
  Conversion conversion;

  /// A new split is the innermost of its dim.
  Distribution after() const {
    return before.with(conversion.axis, {}).with(conversion.axis, conversion.to);
  }
};

/// Both dims divide into zigzag pieces of 2, 3 and 4 ranks, with 2 repeats too.
inline const Shape matrix{48, 48};

/// Splits of a dim over some ranks in all kinds of pieces; the few that differ most come first.
inline std::vector<TypeOnAxis> all_splits(int dim, int64_t extent, int ranks) {
  Pieces uneven{.kind = PieceKind::uneven};
  for (int rank = 0; rank + 1 < ranks; ++rank) uneven.sizes.push_back(5 * rank * (rank + 1) / 2);
  int64_t rest = extent;
  for (const int64_t size : uneven.sizes) rest -= size;
  uneven.sizes.push_back(rest);  // the first has nothing, the last most
  Pieces halves = uneven;
  halves.sizes.back() -= extent / 2;
  return {sharded(dim),
          sharded(dim, halves, 1, 2),
          sharded(dim, {.kind = PieceKind::zigzag}),
          sharded(dim, {.kind = PieceKind::zigzag}, 1, 2),
          sharded(dim, {}, 1, 2),
          sharded(dim, uneven),
          sharded(dim, {.kind = PieceKind::flat})};
}
inline constexpr size_t kFew = 3;
inline constexpr size_t kAll = 7;

/// All types of a placement on an axis, of a matrix that lies like `others` on other axes.
inline std::vector<TypeOnAxis> all_types(const Mesh& mesh, const Distribution& others, Axis axis,
                                         Placement placement, size_t splits) {
  const Shape left = PlainMatrix(mesh, others, matrix).shape(0);
  std::vector<TypeOnAxis> types;
  for (const int dim : {0, 1}) {
    if (placement == Placement::varying) {
      types.push_back(varying(dim, {.kind = PieceKind::tokens}));
    }
    if (placement != Placement::sharded) continue;
    std::vector<TypeOnAxis> of_dim = all_splits(dim, left[dim], mesh.size(axis));
    of_dim.resize(splits);
    types.insert(types.end(), of_dim.begin(), of_dim.end());
  }
  return types.empty() ? std::vector{TypeOnAxis{.placement = placement}} : types;
}

/// All conversions of the table on an axis, of a matrix that lies like `others` on other axes.
inline std::vector<ConversionCase> all_cases(const Mesh& mesh, const Distribution& others,
                                             Axis axis, size_t splits = kAll) {
  std::vector<ConversionCase> cases;
  for (const ConversionRule& rule : conversion_rules()) {
    for (const TypeOnAxis& from : all_types(mesh, others, axis, rule.from, splits)) {
      for (const TypeOnAxis& to : all_types(mesh, others, axis, rule.to, splits)) {
        cases.push_back({others.with(axis, from), {axis, rule.from, to}});
      }
    }
  }
  return cases;
}

inline std::string text_of(const Mesh& mesh, const ConversionCase& of) {
  return fmt::format("{} -> {} on {} (mesh {})", of.before.text(mesh), of.conversion.to.text(),
                     mesh.name(of.conversion.axis), mesh.text());
}

/// One program with a list of conversions, each of a matrix of its own, run on a mesh.
class ConversionRun {
 public:
  struct Options {
    DType dtype = DType::f64;
    bool computed = false;  ///< whether the values are computed, and their memory can be taken over
    bool gradients = true;
  };

  ConversionRun(const Mesh& mesh, std::vector<ConversionCase> cases, const Options& options)
      : mesh_(mesh),
        cases_(std::move(cases)),
        options_(options),
        differentiates_(options.gradients && is_floating(options.dtype)) {
    for (size_t i = 0; i < cases_.size(); ++i) {
      numbers_.push_back(small_numbers(matrix.elements(), fmt::format("value {}", i)));
      gradients_.push_back(small_numbers(matrix.elements(), fmt::format("gradient {}", i)));
    }
    run_.emplace(
        mesh, [&](Builder& builder) { write(builder); },
        [&](int rank, const ValueInfo& value) { return give(rank, value); });
  }

  const MeshRun& run() const { return *run_; }

  /// Compares everything with what the types say: the logical value and the logical gradient stay
  /// as they are.
  void check() const {
    for (size_t i = 0; i < cases_.size(); ++i) {
      const Distribution after = cases_[i].after();
      const std::string what = text_of(mesh_, cases_[i]);
      const Program& program = run_->program();
      EXPECT_EQ(program.spec(program.find(name("y", i))).distribution, after) << what;
      const PlainMatrix result(mesh_, after, matrix);
      const auto y = parts(name("y", i));
      EXPECT_EQ(result.whole(y, what), numbers_[i]) << what;
      if (!differentiates_) continue;
      const PlainMatrix gradient(mesh_, cases_[i].before.dual(), matrix);
      const auto of_x = parts(name("of_x", i));
      EXPECT_EQ(gradient.whole(of_x, "gradient, " + what), gradients_[i]) << "gradient, " << what;
      const PlainMatrix source(mesh_, cases_[i].before, matrix);
      EXPECT_EQ(result.pairing(y, given(after.dual(), gradients_[i])),
                source.pairing(given(cases_[i].before, numbers_[i]), of_x))
          << "pairing, " << what;
    }
  }

 private:
  static std::string name(std::string_view what, size_t i) { return fmt::format("{}.{}", what, i); }

  void write(Builder& builder) const {
    const int rank = builder.program().rank();
    std::vector<Seed> seeds;
    std::vector<Value> wanted;
    for (size_t i = 0; i < cases_.size(); ++i) {
      const auto& [before, conversion] = cases_[i];
      const Shape shape = PlainMatrix(mesh_, before, matrix).shape(rank);
      const Value x = builder.input(name("x", i), {shape, options_.dtype, before});
      Value y = options_.computed ? scale(builder, x, 1) : x;
      y = convert(builder, y, conversion.axis, conversion.from, conversion.to);
      builder.name(y, name("y", i));
      builder.output(y);
      if (!differentiates_) continue;
      Spec spec = builder.spec(y);
      spec.distribution = spec.distribution.dual();
      Value seed = builder.input(name("seed", i), spec);
      seeds.push_back({y, seed, SeedKind::boundary});
      wanted.push_back(x);
    }
    if (seeds.empty()) return;
    const std::vector<Value> of_x = differentiate(builder, seeds, wanted);
    for (size_t i = 0; i < of_x.size(); ++i) {
      const Value result = scale(builder, of_x[i], 1);  // the gradient may be the seed itself
      builder.name(result, name("of_x", i));
      builder.output(result);
    }
  }

  Tensor give(int rank, const ValueInfo& value) const {
    const size_t dot = value.name.find('.');
    const auto i = static_cast<size_t>(std::stoul(value.name.substr(dot + 1)));
    const bool is_seed = value.name.starts_with("seed");
    const Distribution lies = is_seed ? cases_[i].after().dual() : cases_[i].before;
    const PlainMatrix plain(mesh_, lies, matrix);
    return tensor_of(plain.shape(rank), value.spec.dtype,
                     plain.part(is_seed ? gradients_[i] : numbers_[i], rank));
  }

  std::vector<std::vector<double>> given(const Distribution& distribution,
                                         const std::vector<double>& numbers) const {
    std::vector<std::vector<double>> result;
    const PlainMatrix plain(mesh_, distribution, matrix);
    for (int rank = 0; rank < mesh_.ranks(); ++rank) result.push_back(plain.part(numbers, rank));
    return result;
  }

  std::vector<std::vector<double>> parts(const std::string& name) const {
    std::vector<std::vector<double>> result;
    for (int rank = 0; rank < mesh_.ranks(); ++rank) {
      result.push_back(numbers_of(run_->value(rank, name)));
    }
    return result;
  }

  const Mesh mesh_;
  std::vector<ConversionCase> cases_;
  Options options_;
  bool differentiates_;
  std::vector<std::vector<double>> numbers_, gradients_;
  std::optional<MeshRun> run_;
};

}  // namespace tessera::testing
