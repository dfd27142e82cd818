// What ranks keep and receive where they share the training state, beside the figures of an
// independent program, tests/reference/sharding.py, which says what tests/fixtures/sharding holds.

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "ops/collective/unit_pieces.h"
#include "train/counted_step.h"

namespace tessera::testing {
namespace {

/// A row of the fixture.
struct ShardingRow {
  std::vector<int> levels;
  ShardPlan plan;
  bool is_stored = false;  ///< nothing is rounded
  std::vector<double> kept;
  std::map<std::string, std::vector<double>> received;  ///< by level

  std::string text() const {
    return fmt::format("levels {}, weights {}, gradients {}, optimizer {}, secondary {}{}",
                       fmt::join(levels, " "), plan.axes.weights, plan.axes.gradients,
                       plan.axes.optimizer, plan.axes.secondary, is_stored ? "" : ", rounded");
  }
};

std::vector<ShardingRow> sharding_rows() {
  const auto json = nlohmann::json::parse(
      read_file(fs::path(TESSERA_SOURCE) / "tests/fixtures/sharding/table.json"));
  // The first of the axes that may cut the state is the context axis, of one rank here.
  const auto axes = [](int levels) { return levels == 0 ? 0 : levels + 1; };
  std::vector<ShardingRow> rows;
  for (const nlohmann::json& values : json["rows"]) {
    std::map<std::string, nlohmann::json> row;
    for (size_t i = 0; i < values.size(); ++i) row[json["columns"][i]] = values[i];
    const auto wire = [&](size_t index) {
      const std::string format = row["wires"][index];
      if (format == "stored") return Wire{};
      return Wire{from_word<WireFormat>(format), json["block"].get<int64_t>()};
    };
    ShardingRow result{.levels = row["levels"],
                       .plan = {.axes = {.weights = axes(row["weights"]),
                                         .gradients = axes(row["gradients"]),
                                         .optimizer = axes(row["optimizer"]),
                                         .secondary = axes(row["secondary"])},
                                .unit_options = {.weights_wire = wire(0),
                                                 .secondary_wire = wire(1),
                                                 .gradients_wire = wire(2)}},
                       .is_stored = wire(0) == Wire{},
                       .kept = row["kept"]};
    for (const char* kind : {"forward", "backward", "reduction", "step_sum", "step_gather"}) {
      result.received[kind] = row[kind].get<std::vector<double>>();
    }
    rows.push_back(std::move(result));
  }
  return rows;
}

/// A model of the fixture's units.
LayoutTrial trial_of_row(const ShardingRow& row) {
  ModelConfig model;
  model.layers = 1;
  model.hidden_size = 64;
  model.heads = 4;
  model.kv_heads = 4;
  model.feed_forward_size = 256;
  model.vocabulary_size = 1024;
  LayoutTrial trial{.model = model,
                    .size = {.sequences = 16, .context = 2},
                    .compute = DType::bf16,
                    .mesh = Mesh({.data = row.levels}),
                    .shard = row.plan};
  return trial;
}

/// The bytes that a rank keeps of weights, second copies, main gradients, masters and moments.
std::vector<double> kept_bytes(const StepPrograms& programs) {
  std::set<std::string> masters, moments, known;
  for (const ParameterUnit& unit : programs.model.parameters.units()) {
    masters.insert(master_name(unit));
    moments.insert({first_moment_name(unit), second_moment_name(unit)});
  }
  std::vector<double> kept(5);
  for (const Program* program : programs.list()) {
    for (const ValueInfo& value : program->values()) {
      if (value.view || value.kind == ValueKind::input || value.kind == ValueKind::computed)
        continue;
      if (!known.insert(value.name).second) continue;
      const auto bytes = static_cast<double>(value.spec.bytes());
      if (value.kind == ValueKind::parameter) kept[0] += bytes;
      if (value.name.starts_with(kSecondCopyPrefix)) kept[1] += bytes;
      if (value.kind == ValueKind::main_gradient) kept[2] += bytes;
      if (masters.contains(value.name)) kept[3] += bytes;
      if (moments.contains(value.name)) kept[4] += bytes;
    }
  }
  return kept;
}

/// The kind of collective of the training state that a node is, as the fixture has it; empty for
/// others.
std::string kind_of(const Program& program, const Node& node, bool is_update) {
  const std::string_view name = node.operation->name();
  if (name == "gather_units" && node.phase == Phase::forward) return "forward";
  if (name == "gather_units" || name == "gather_copies") return "backward";
  if (name == "gather_pieces") return "step_gather";
  if (name != "take_piece_of_sum" && name != "take_sum") return "";
  if (!is_update) return "reduction";
  const Value summed = program.base(node.inputs[0]);
  return program.info(summed).kind == ValueKind::main_gradient ? "step_sum" : "";
}

/// Adds bytes over some axes to those of their level.
void add_to_level(const Mesh& mesh, const std::vector<Axis>& axes, double bytes,
                  std::vector<double>& by_level) {
  for (size_t level = 0; level < mesh.data().size(); ++level) {
    if (axes == std::vector{mesh.data()[level]}) return void(by_level[level] += bytes);
  }
  if (bytes > 0) ADD_FAILURE() << "bytes over several levels at once";
}

using BytesByKind = std::map<std::string, std::vector<double>>;

/// Returns zeros for each kind of a row.
BytesByKind no_bytes(const ShardingRow& row) {
  BytesByKind result;
  for (const auto& [kind, bytes] : row.received) result[kind].resize(bytes.size());
  return result;
}

/// Values are divided by the number of ranks, which is a power of two. So nothing is rounded.
void divide(std::vector<double>& values, int ranks) {
  for (double& value : values) value /= ranks;
}

/// What operations say of their bytes, and what states take, needs no run.
TEST(BytesOfShards, OfEveryTripleOfPlacementsAreThoseOfTheReference) {
  for (const ShardingRow& row : sharding_rows()) {
    SCOPED_TRACE(row.text());
    const LayoutTrial trial = trial_of_row(row);
    const int ranks = trial.mesh.ranks();
    std::vector<double> kept(row.kept.size());
    BytesByKind sent = no_bytes(row);
    for (int rank = 0; rank < ranks; ++rank) {
      const StepPrograms programs = layout_programs(trial, rank);
      const std::vector<double> own = kept_bytes(programs);
      for (size_t i = 0; i < own.size(); ++i) kept[i] += own[i];
      for (const Program* program : {&programs.chunks()[0].program, &programs.update.program}) {
        for (const Node& node : program->nodes()) {
          const std::string kind = kind_of(*program, node, program == &programs.update.program);
          if (kind.empty()) continue;
          const Cost cost =
              node.operation->cost(program->specs(node.inputs), program->specs(node.outputs));
          for (const WireBytes& wire : cost.wire) {
            add_to_level(trial.mesh, wire.axes, wire.bytes, sent[kind]);
          }
        }
      }
    }
    divide(kept, ranks);
    for (auto& [kind, bytes] : sent) divide(bytes, ranks);
    EXPECT_EQ(kept, row.kept);
    EXPECT_EQ(sent, row.received);
  }
}

/// ZeRO-3, ZeRO++ and ZeRO-topo, in steps that run.
TEST(BytesOfShards, CountedByTheTransportAreThoseOfTheReference) {
  int schemes = 0;
  for (const ShardingRow& row : sharding_rows()) {
    const ShardAxes& axes = row.plan.axes;
    const bool is_zero_3 = row.is_stored && axes.weights == 4;
    if (!is_zero_3 && axes.secondary == 0) continue;
    SCOPED_TRACE(row.text());
    ++schemes;
    const LayoutTrial trial = trial_of_row(row);
    const CountedStep step(trial);
    BytesByKind received = no_bytes(row);
    for (const CountedNode& counted : step.nodes()) {
      const std::string kind = kind_of(*counted.program, *counted.node, step.in_update(counted));
      if (kind.empty()) continue;
      for (const auto& [over, bytes] : counted.received_by_axes) {
        add_to_level(trial.mesh, over, static_cast<double>(bytes), received[kind]);
      }
    }
    for (auto& [kind, bytes] : received) divide(bytes, trial.mesh.ranks());
    EXPECT_EQ(received, row.received);
  }
  EXPECT_EQ(schemes, 10);
}

}  // namespace
}  // namespace tessera::testing
