#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/piece_indices.h"
#include "config/load_config.h"
#include "config/mesh_of.h"
#include "config/resolve.h"
#include "engine/action.h"
#include "ops/support.h"
#include "plan/programs.h"

namespace tessera {
namespace {

/// A layout as [parallel] and --ranks give it.
struct Layout {
  ParallelSection parallel;
  int ranks = 1;
};

/// Each axis with 2 and with 4 ranks, alone and in pairs. The expert axis takes ranks of others, at
/// least of data.
std::vector<Layout> layouts(bool mixture) {
  std::vector<Layout> result;
  const auto add = [&](int tensor, int context, int data, int expert) {
    if (expert > 1 && !mixture) return;
    result.push_back({.parallel = {.tensor = tensor, .context = context, .expert = expert},
                      .ranks = tensor * context * data});
  };
  for (const int n : {2, 4}) {
    add(n, 1, 1, 1);
    add(1, n, 1, 1);
    add(1, 1, n, 1);
    add(1, 1, n, n);
    for (const int m : {2, 4}) {
      add(n, m, 1, 1);
      add(n, 1, m, 1);
      add(1, n, m, 1);
      add(n, 1, m, m);
      add(1, n, m, m);
      add(1, 1, 2 * n, m);
    }
  }
  return result;
}

/// A shipped model with as many layers as it has kinds of them: types do not depend on the number.
RunConfig shortened(const fs::path& path) {
  RunConfig config = load_config(path);
  if (config.model.vocabulary_size == 0) config.model.vocabulary_size = 4096;
  config = resolve(config);
  config.model.layers = std::min<int64_t>(config.model.layers, 2);
  config.model.dense_layers = std::min<int64_t>(config.model.dense_layers, 1);
  config.train.micro_batch = 1;
  config.train.global_batch = 64;
  config.train.evaluate_every = 1;  // the evaluation's program too
  return config;
}

/// One shipped configuration of each kind of model: programs of models that differ in their sizes
/// alone have the same types.
std::vector<fs::path> shipped_kinds() {
  std::map<std::string, fs::path> result;
  for (const auto& entry : fs::directory_iterator(fs::path(TESSERA_SOURCE) / "configs")) {
    if (entry.path().extension() != ".toml") continue;
    const ModelConfig model = shortened(entry.path()).model;
    const auto [kind, is_new] = result.try_emplace(
        fmt::format("{} {} {} {} {}", static_cast<int>(model.family), model.mixture(),
                    model.tied_head, model.shared_experts > 0, model.dense_layers > 0),
        entry.path());
    if (!is_new && entry.path() < kind->second) kind->second = entry.path();
  }
  std::vector<fs::path> paths;
  for (const auto& [kind, path] : result) paths.push_back(path);
  return paths;
}

/// Compressed convolutional attention has no key heads that several ranks share.
bool takes_tensor_ranks(const ModelConfig& config, int64_t ranks) {
  return config.attention == AttentionKind::grouped_query || config.kv_heads % ranks == 0;
}

void expect_whole_parameters(const Mesh& mesh, const ParameterList& parameters) {
  for (const ParameterSpec& spec : parameters.specs()) {
    for (int dim = 0; dim < spec.shape.rank(); ++dim) {
      EXPECT_EQ(logical_extent(mesh, spec.distribution, dim, spec.piece_shape[dim]),
                spec.shape[dim])
          << spec.name;
    }
  }
}

/// Writing a program is the check of its types. Nothing is computed, and no weight has memory.
TEST(Types, EveryFamilyIsAcceptedOnEveryMesh) {
  int written = 0;
  for (const fs::path& path : shipped_kinds()) {
    RunConfig config = shortened(path);
    for (const Layout& layout : layouts(config.model.mixture())) {
      config.parallel = layout.parallel;
      config.parallel.overlap = false;  // types do not depend on the order
      if (!takes_tensor_ranks(config.model, layout.parallel.tensor)) continue;
      for (const ExpertExchange exchange :
           {ExpertExchange::all_gather, ExpertExchange::all_to_all}) {
        if (layout.parallel.expert == 1 && exchange != ExpertExchange::all_gather) continue;
        config.parallel.expert_exchange = exchange;
        const Mesh mesh = mesh_of(config, layout.ranks);
        SCOPED_TRACE(fmt::format("{} on {}", path.filename().string(), mesh.text()));
        for (const int rank : {0, layout.ranks - 1}) {
          const StepPrograms programs = step_programs(config, {mesh, rank});
          const ParameterList& parameters = programs.model.parameters;
          expect_whole_parameters(mesh, parameters);
          // Each gradient is a sum over the ranks that use the weight on their own data.
          for (const ParameterUnit& unit : parameters.units()) {
            if (!unit.has_gradients()) continue;
            for (const Axis axis : mesh.axes_of(unit.distribution.view())) {
              EXPECT_TRUE(unit.distribution.on(axis).split() !=
                          (unit.gradient_distribution.on(axis).placement == Placement::partial))
                  << unit.name << " on " << mesh.name(axis);
            }
          }
          ++written;
        }
      }
    }
  }
  EXPECT_GT(written, 200);
}

/// Neither the vocabulary nor the inner channels divide over the tensor ranks.
TEST(Types, EveryFamilyIsAcceptedInUnevenPieces) {
  for (const fs::path& path : shipped_kinds()) {
    RunConfig config = shortened(path);
    config.model.vocabulary_size = 4099;
    if (config.model.feed_forward_size > 0) config.model.feed_forward_size += 3;
    config.parallel.tensor = 4;
    if (!takes_tensor_ranks(config.model, 4)) continue;
    const Mesh mesh = mesh_of(config, 8);
    int64_t rows = 0;
    for (int rank = 0; rank < 4; ++rank) {
      SCOPED_TRACE(fmt::format("{}, rank {}", path.filename().string(), rank));
      const StepPrograms programs = step_programs(config, {mesh, rank});
      const ParameterList& parameters = programs.model.parameters;
      expect_whole_parameters(mesh, parameters);
      rows += parameters.specs().front().piece_shape[0];
      EXPECT_EQ(parameters.specs().front().piece_shape[0], rank == 3   ? 1019
                                                           : rank == 0 ? 1032
                                                                       : 1024);
    }
    EXPECT_EQ(rows, 4099);
  }
}

/// A type without what depends on the number of ranks: sizes of pieces, repeats, and the pieces of
/// a dim that divides or not.
std::string kind_of(const TypeOnAxis& type) {
  if (!type.split()) return std::string(word(type.placement));
  const PieceKind kind = type.pieces.kind == PieceKind::uneven ? PieceKind::even : type.pieces.kind;
  return fmt::format("{} dim {} factor {} {} {}", word(type.placement), type.dim, type.factor,
                     word(kind), type.pieces.identity);
}

/// The types of a program's values that have names of their own, by name. A name that several have
/// stands for the types of all of them, in their order.
std::map<std::string, std::vector<std::string>> named_types(const Program& program) {
  std::map<std::string, std::vector<std::string>> types;
  for (const ValueInfo& value : program.values()) {
    if (value.name.find('#') != std::string::npos) continue;
    const Distribution& lies = value.spec.distribution;
    std::string text = lies.view() == MeshView::dense ? "dense" : "expert";
    for (const Axis axis : program.mesh().axes_of(lies.view())) {
      text += fmt::format(", {}: {}", program.mesh().name(axis), kind_of(lies.on(axis)));
    }
    types[value.name].push_back(text);
  }
  return types;
}

void expect_types(const Program& one, const Program& several) {
  const auto of_one = named_types(one);
  const auto of_several = named_types(several);
  for (const auto& [name, types] : of_one) {
    const auto found = of_several.find(name);
    ASSERT_NE(found, of_several.end()) << name << " is on one rank only";
    EXPECT_EQ(types, found->second) << name;
  }
  EXPECT_GT(of_one.size(), 10u);
}

/// What one rank computes has the types that it has on meshes of every axis, so that it is refused
/// or accepted as they are.
TEST(Types, OfOneRankAreThoseOfSeveral) {
  for (const fs::path& path : shipped_kinds()) {
    RunConfig config = shortened(path);
    const int experts = config.model.mixture() ? 2 : 1;
    for (const ExpertExchange exchange : {ExpertExchange::all_gather, ExpertExchange::all_to_all}) {
      config.parallel.expert_exchange = exchange;
      config.parallel.tensor = config.parallel.context = config.parallel.expert = 1;
      const StepPrograms one = step_programs(config, {mesh_of(config, 1), 0});
      for (const int context : {1, 2}) {
        config.parallel.tensor = takes_tensor_ranks(config.model, 2) ? 2 : 1;
        config.parallel.context = context;
        config.parallel.expert = experts;
        const Mesh mesh = mesh_of(config, 4 * context);
        SCOPED_TRACE(fmt::format("{} on {}", path.filename().string(), mesh.text()));
        const StepPrograms several = step_programs(config, {mesh, 0});
        ASSERT_EQ(one.chunks().size(), several.chunks().size());
        for (size_t i = 0; i < one.chunks().size(); ++i) {
          expect_types(one.chunks()[i].program, several.chunks()[i].program);
        }
        expect_types(one.update.program, several.update.program);
      }
    }
  }
}

/// The operations of a step that exist for the sake of ranks: that send something, and that change
/// how a value lies.
std::set<std::string> run_for_ranks(const StepPrograms& programs) {
  static const std::set<std::string> conversions{
      "retype", "own_piece", "zeros_around", "cross", "one_keeps", "take_sum", "exchange_in_place"};
  std::set<std::string> found;
  for (const Program* program : programs.list()) {
    for (const int node : segment_nodes(*program, Segment::whole)) {
      const Operation& operation = *program->nodes()[static_cast<size_t>(node)].operation;
      const std::string name(operation.name());
      if (operation.lane() != Lane::compute || conversions.contains(name)) found.insert(name);
    }
  }
  return found;
}

TEST(Types, OneRankRunsNothingForThem) {
  for (const fs::path& path : shipped_kinds()) {
    SCOPED_TRACE(path.filename().string());
    RunConfig config = shortened(path);
    for (const ExpertExchange exchange : {ExpertExchange::all_gather, ExpertExchange::all_to_all}) {
      config.parallel = {.expert_exchange = exchange};
      EXPECT_THAT(run_for_ranks(step_programs(config, {mesh_of(config, 1), 0})),
                  ::testing::IsEmpty());
      if (!takes_tensor_ranks(config.model, 2)) continue;
      config.parallel.tensor = 2;
      EXPECT_THAT(run_for_ranks(step_programs(config, {mesh_of(config, 2), 0})),
                  ::testing::IsSupersetOf({"all_gather", "reduce_scatter"}));
    }
  }
}

}  // namespace
}  // namespace tessera
