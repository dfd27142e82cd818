#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/action.h"
#include "engine/differentiate.h"
#include "ops/collective/convert.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/linear.h"
#include "program/view.h"
#include "support/mesh_programs.h"

namespace tessera::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;

const Shape weight_shape{8, 8};

/// A type of this placement that is the same for any number of ranks. Splits are along `dim`.
TypeOnAxis type_of(Placement placement, int dim) {
  if (placement == Placement::sharded) return sharded(dim);
  if (placement == Placement::varying) {
    return varying(dim, {.kind = PieceKind::tokens});
  }
  return {.placement = placement};
}

/// How a weight is used: the types that it is converted to one after the other on the tensor axis,
/// and, on the data axis, whether it is used on each rank's own data, and before or after that.
struct Path {
  std::vector<TypeOnAxis> types;
  enum { as_one, own_data_first, own_data_last } data = as_one;
};

std::string text_of(const TypeOnAxis& stored, std::span<const Path> uses) {
  std::string text = stored.text();
  for (const Path& path : uses) {
    text += fmt::format("; use {}:", static_cast<int>(path.data));
    for (const TypeOnAxis& type : path.types) text += " -> " + type.text();
  }
  return text;
}

/// All paths of at most this many conversions of the table.
std::vector<Path> all_paths(const TypeOnAxis& stored, size_t length) {
  std::vector<Path> paths{{}};
  for (size_t begin = 0; length > 0; --length) {
    const size_t end = paths.size();
    for (; begin < end; ++begin) {
      const Path path = paths[begin];
      const TypeOnAxis& last = path.types.empty() ? stored : path.types.back();
      for (const ConversionRule& rule : conversion_rules()) {
        if (rule.from != last.placement) continue;
        paths.push_back(path);
        paths.back().types.push_back(type_of(rule.to, rule.from == rule.to ? 1 - last.dim : 0));
      }
    }
  }
  return paths;
}

/// A weight that is stored so on the tensor axis, and used along several paths.
void write_uses(Builder& builder, const TypeOnAxis& stored, std::span<const Path> uses) {
  const Mesh& mesh = builder.program().mesh();
  const Axis t = mesh.tensor();
  const Distribution lies = Distribution().with(t, stored);
  const int64_t rows = weight_shape[0] / (stored.split() ? mesh.size(t) : 1);
  const Shape own = weight_shape.with_dim(0, rows);
  const Value weight = builder.parameter("weight", {own, DType::f64, lies});
  std::vector<Seed> seeds;
  for (size_t i = 0; i < uses.size(); ++i) {
    const std::vector<Axis> data{mesh.data()[0]};
    Value value = weight;
    if (uses[i].data == Path::own_data_first) value = use(builder, value, data);
    TypeOnAxis before = stored;
    for (const TypeOnAxis& type : uses[i].types) {
      value = convert(builder, value, t, before.placement, type);
      builder.name(value, fmt::format("value {} {}", i, type.text()));
      before = type;
    }
    if (uses[i].data == Path::own_data_last) value = use(builder, value, data);
    const Value y = scale(builder, value, 2);
    Spec spec = builder.spec(y);
    spec.distribution = spec.distribution.dual();
    seeds.push_back({y, builder.input(fmt::format("seed {}", i), spec), SeedKind::boundary});
  }
  differentiate(builder, seeds);
}

/// The types of all values that have a name of their own.
std::map<std::string, std::string> named_types(const Program& program) {
  std::map<std::string, std::string> types;
  for (const ValueInfo& value : program.values()) {
    if (value.name.find('#') != std::string::npos) continue;
    if (value.name.starts_with("gradient:") && value.kind == ValueKind::computed) continue;
    types.emplace(value.name, value.spec.distribution.text(program.mesh()));
  }
  return types;
}

std::map<std::string, std::string> types_on(const MeshSizes& sizes, const TypeOnAxis& stored,
                                            std::span<const Path> uses) {
  Program program{Mesh(sizes)};
  Builder builder(program);
  write_uses(builder, stored, uses);
  return named_types(program);
}

std::vector<double> gradient_on(const MeshSizes& sizes, const TypeOnAxis& stored,
                                std::span<const Path> uses) {
  const Mesh mesh(sizes);
  std::map<std::string, Tensor> given;
  for (const char* name : {"weight", "seed 0", "seed 1"}) {
    given.emplace(name, tensor_of(weight_shape, DType::f64, small_numbers(64, name)));
  }
  const MeshRun run(
      mesh, [&](Builder& builder) { write_uses(builder, stored, uses); },
      give_parts(mesh, std::move(given)));
  return numbers_of(run.whole("gradient:weight"));
}

/// The conversions of the table, and paths of two of them, from every type that a weight may be
/// stored under.
template <typename Check>
void for_all_uses(const Check& check) {
  for (const Placement placement : {Placement::invariant, Placement::replicated, Placement::sharded,
                                    Placement::varying, Placement::partial}) {
    const TypeOnAxis stored = type_of(placement, 0);
    for (const Path& path : all_paths(stored, 2)) check(stored, std::vector{path});
    const std::vector<Path> single = all_paths(stored, 1);
    for (const Path& a : single) {
      for (const Path& b : single) check(stored, std::vector{a, b});
    }
  }
}

/// On an axis of one rank every conversion is free, and every type would compute the same. The
/// types are kept all the same: those of values, and of the main gradient.
TEST(MainGradient, HasOneTypeOnAxesOfOneAndOfSeveralRanks) {
  int tried = 0;
  for_all_uses([&](const TypeOnAxis& stored, std::vector<Path> uses) {
    for (const auto data : {Path::as_one, Path::own_data_first, Path::own_data_last}) {
      for (Path& path : uses) path.data = data;
      const auto expected = types_on({.tensor = 2, .data = {2}}, stored, uses);
      ASSERT_TRUE(expected.contains("gradient:weight"));
      for (const MeshSizes& sizes : std::vector<MeshSizes>{{}, {.tensor = 2}, {.data = {2}}}) {
        EXPECT_EQ(types_on(sizes, stored, uses), expected)
            << text_of(stored, uses) << " on " << Mesh(sizes).text();
      }
      ++tried;
    }
  });
  EXPECT_GT(tried, 300);
}

/// The gradient of the logical weight, which several ranks have together, is that of one rank. What
/// varies has no logical whole.
TEST(MainGradient, IsTheSameOnAxesOfOneAndOfSeveralRanks) {
  const auto varies = [](const TypeOnAxis& type) { return type.placement == Placement::varying; };
  for_all_uses([&](const TypeOnAxis& stored, std::vector<Path> uses) {
    if (varies(stored) || std::ranges::any_of(uses, [&](const Path& path) {
          return std::ranges::any_of(path.types, varies);
        })) {
      return;
    }
    for (const auto data : {Path::as_one, Path::own_data_first, Path::own_data_last}) {
      for (Path& path : uses) path.data = data;
      const std::vector<double> expected = gradient_on({}, stored, uses);
      for (const MeshSizes& sizes :
           std::vector<MeshSizes>{{.tensor = 2}, {.data = {2}}, {.tensor = 2, .data = {2}}}) {
        EXPECT_EQ(gradient_on(sizes, stored, uses), expected)
            << text_of(stored, uses) << " on " << Mesh(sizes).text();
      }
    }
  });
}

/// A unit of two weights, stored in flat pieces over the data ranks if it is `sharded_unit`,
/// gathered before its use, and used on each rank's own rows.
void write_unit(Builder& builder, bool sharded_unit) {
  const Mesh& mesh = builder.program().mesh();
  const Axis d = mesh.data()[0];
  const int64_t ranks = mesh.size(d);
  const Distribution pieces = Distribution().with(d, sharded(0, {.kind = PieceKind::flat}));
  const Distribution everywhere = Distribution().with(d, replicated());
  Value unit;
  if (sharded_unit) {
    unit = builder.parameter("unit", {{64 / ranks}, DType::f64, pieces});
    unit = convert(builder, unit, d, Placement::sharded, replicated());
  } else {
    unit = builder.parameter("unit", {{64}, DType::f64, {}});
    unit = use(builder, unit, std::vector{d});
  }
  builder.name(unit, "gathered");
  const Value up = view(builder, unit, 0, {5, 4}, everywhere, "up");
  const Value down = view(builder, unit, 32, {4, 5}, everywhere, "down");
  const Distribution rows = Distribution().with(d, sharded(0));
  const Value x = builder.input("x", {{8 / ranks, 4}, DType::f64, rows});
  const Value y = linear(builder, linear(builder, x, up), down);
  const Value seed = builder.input("seed", {{8 / ranks, 4}, DType::f64, rows});
  differentiate(builder, std::vector{Seed{y, seed, SeedKind::boundary}});
}

/// The names of the operations that run.
std::vector<std::string> operations_of_unit(const MeshSizes& sizes, bool sharded_unit) {
  Program program{Mesh(sizes)};
  Builder builder(program);
  write_unit(builder, sharded_unit);
  std::vector<std::string> names;
  for (const int index : segment_nodes(program, Segment::whole)) {
    names.emplace_back(program.nodes()[static_cast<size_t>(index)].operation->name());
  }
  return names;
}

std::vector<double> unit_gradient(const MeshSizes& sizes, bool sharded_unit) {
  const Mesh mesh(sizes);
  std::map<std::string, Tensor> given;
  given.emplace("unit", tensor_of({64}, DType::f64, small_numbers(64, "unit")));
  given.emplace("x", tensor_of({8, 4}, DType::f64, small_numbers(32, "x")));
  given.emplace("seed", tensor_of({8, 4}, DType::f64, small_numbers(32, "seed")));
  const MeshRun run(
      mesh, [&](Builder& builder) { write_unit(builder, sharded_unit); },
      give_parts(mesh, std::move(given)));
  return numbers_of(run.whole("gradient:unit"));
}

/// Weights that are sharded over the data ranks and gathered before their use: the gradient comes
/// back by a reduce-scatter. On one rank nothing of that runs, and the types are the same.
TEST(MainGradient, OfAGatheredUnitIsShardedAsTheUnit) {
  std::map<int, std::map<std::string, std::string>> types;
  for (const int ranks : {1, 2}) {
    Program program{Mesh({.data = {ranks}})};
    Builder builder(program);
    write_unit(builder, true);
    types[ranks] = named_types(program);
    EXPECT_EQ(types[ranks]["gradient:unit"], "data: sharded (dim 0, flat)");
    EXPECT_EQ(types[ranks]["up"], "data: replicated");
  }
  EXPECT_EQ(types[1], types[2]);

  EXPECT_THAT(operations_of_unit({.data = {2}}, true),
              AllOf(Contains("all_gather"), Contains("reduce_scatter")));
  EXPECT_EQ(operations_of_unit({}, true), operations_of_unit({}, false));
  for (const int ranks : {1, 2, 4}) {
    EXPECT_EQ(unit_gradient({.data = {ranks}}, true), unit_gradient({}, false)) << ranks;
  }
}

/// How a weight that the experts' view has as well is used there, and in the dense view.
struct CrossedUse {
  bool dense_own_data = false;    ///< in the dense view on each rank's own data, before anything
  bool experts_own_data = false;  ///< in the experts' view on each rank's own data
  bool parts = false;             ///< the weight is a part of a unit
};

void write_crossed_use(Builder& builder, const CrossedUse& how) {
  const Mesh& mesh = builder.program().mesh();
  const Value unit =
      builder.parameter("unit", {how.parts ? Shape{24} : weight_shape, DType::f64, {}});
  const Value weight = how.parts ? view(builder, unit, 8, {4, 4}, {}, "weight") : unit;
  const auto dense = mesh.axes_of(MeshView::dense);
  const auto experts = mesh.axes_of(MeshView::expert);
  Value here = weight, there = cross(builder, weight, MeshView::expert);
  if (how.dense_own_data) here = use(builder, here, std::vector{dense[0]});
  if (how.experts_own_data) there = use(builder, there, experts);
  std::vector<Seed> seeds;
  for (const auto& [name, value] : {std::pair("seed here", here), std::pair("seed there", there)}) {
    const Value y = scale(builder, value, 2);
    Spec spec = builder.spec(y);
    spec.distribution = spec.distribution.dual();
    seeds.push_back({y, builder.input(name, spec), SeedKind::boundary});
  }
  differentiate(builder, seeds);
}

/// A parameter may be used in both views of the mesh. Its main gradient, which lies in its own
/// view, then is a sum over all axes or over none, as what crosses is.
TEST(MainGradient, OfAWeightThatCrossesToTheExpertsIsTheSumOfItsUses) {
  for (const MeshSizes& sizes : {MeshSizes{}, MeshSizes{.tensor = 2, .data = {2}, .expert = 2},
                                 MeshSizes{.tensor = 2, .expert = 2}}) {
    const Mesh mesh(sizes);
    for (int bits = 0; bits < 8; ++bits) {
      const CrossedUse how{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0};
      const Shape shape = how.parts ? Shape{24} : weight_shape;
      const Shape part = how.parts ? Shape{4, 4} : weight_shape;
      std::map<std::string, Tensor> given;
      given.emplace("unit", tensor_of(shape, DType::f64, small_numbers(shape.elements(), "unit")));
      std::vector<double> expected(static_cast<size_t>(shape.elements()));
      for (const char* seed : {"seed here", "seed there"}) {
        const std::vector<double> numbers = small_numbers(part.elements(), seed);
        given.emplace(seed, tensor_of(part, DType::f64, numbers));
        for (size_t i = 0; i < numbers.size(); ++i) {
          expected[(how.parts ? 8 : 0) + i] += 2 * numbers[i];
        }
      }
      const MeshRun run(
          mesh, [&](Builder& builder) { write_crossed_use(builder, how); },
          give_parts(mesh, std::move(given)));
      EXPECT_EQ(numbers_of(run.whole("gradient:unit")), expected) << mesh.text() << ", " << bits;
      const Program& program = run.program();
      const Distribution& lies = program.spec(program.find("gradient:unit")).distribution;
      const bool sums = how.dense_own_data || how.experts_own_data;
      for (const Axis axis : mesh.axes_of(MeshView::dense)) {
        EXPECT_EQ(lies.on(axis), sums ? partial() : invariant()) << mesh.text() << ", " << bits;
      }
    }
  }
}

}  // namespace
}  // namespace tessera::testing
