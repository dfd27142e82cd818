#include "plan/overlap_step.h"

#include <algorithm>
#include <optional>
#include <set>
#include <variant>

#include <fmt/format.h>

#include "base/error.h"
#include "hardware/hardware_file.h"
#include "plan/early_sums.h"
#include "plan/node_seconds.h"
#include "plan/run_target.h"

namespace tessera {
namespace {

// Nominal rates of calls of other ranks: seconds, and bytes a second.
constexpr double kLatency = 10e-6, kWire = 50e9;

/// Returns the segments of a chunk's program that the lists of a phase run, in the order in which a
/// frame runs them.
std::vector<Segment> segments_of(std::span<const StageList> lists, int program) {
  std::set<Segment> found;
  for (const StageList& list : lists) {
    for (const StageEntry& entry : list.entries) {
      const auto* const action = std::get_if<StageAction>(&entry);
      if (action != nullptr && action->run.program == program) found.insert(action->run.segment);
    }
  }
  return {found.begin(), found.end()};  // Segment has them in this order
}

/// Returns the first rank of a rank's stage.
int first_of_stage(const MeshRank& mesh_rank) {
  const Mesh& mesh = mesh_rank.mesh;
  int rank = 0;
  while (mesh.stage(rank) != mesh.stage(mesh_rank.rank)) ++rank;
  return rank;
}

/// Finds the order of one program; `model` is that of the rank whose order all take.
void put_in_order(Program& program, const Program& model, std::span<const Segment> segments,
                  const OverlapOptions& options) {
  const std::vector<int> order = overlapped_order(model, segments, options);
  const auto is_same = [](const Node& a, const Node& b) {
    return a.operation->name() == b.operation->name();
  };
  TESSERA_CHECK(std::ranges::equal(program.nodes(), model.nodes(), is_same),
                "rank {} has other operations than rank {} of its stage", program.rank(),
                model.rank());
  if (!order.empty()) program.reorder(order);
}

}  // namespace

double nominal_seconds(const Program& program, const Node& node) {
  constexpr double kProducts = 400e12, kMemory = 3e12;
  const Cost cost = node_cost(program, node);
  const bool is_bf16 =
      !node.inputs.empty() && program.spec(node.inputs.front()).dtype == DType::bf16;
  const double flops = cost.flops + cost.repeated_flops;
  double seconds = std::max(flops / (is_bf16 ? kProducts : kProducts / 4), cost.bytes / kMemory);
  for (const WireBytes& wire : cost.wire) seconds += kLatency + wire.bytes / kWire;
  return seconds;
}

double nominal_seconds_of_messages(const Program& program, std::span<const Value> values,
                                   int /*peer*/) {
  double seconds = 0;
  for (const Value value : values) {
    const Spec& spec = program.spec(value);
    const int64_t bytes = spec.shape.elements() * dtype_size(spec.dtype);
    seconds += kLatency + static_cast<double>(bytes) / kWire;
  }
  return seconds;
}

StepOverlap step_overlap(const RunConfig& config) {
  StepOverlap result{
      .options = {.seconds = nominal_seconds, .memory = config.parallel.overlap_memory.count},
      .messages = nominal_seconds_of_messages,
      .times = "nominal rates"};
  const std::string& path = config.run.hardware;
  if (path.empty()) return result;
  const Hardware hardware = read_hardware(path);
  if (hardware.collectives.empty()) return result;
  result.times = path;
  const NodeSeconds seconds(hardware, path, run_target(config));
  result.options.seconds = seconds;
  result.messages = [seconds](const Program& program, std::span<const Value> values, int peer) {
    return seconds.messages(program, values, peer);
  };
  return result;
}

std::string overlap_warning(const RunConfig& config) {
  const std::string& path = config.run.hardware;
  if (path.empty() || !config.parallel.overlap || !read_hardware(path).collectives.empty())
    return "";
  return fmt::format(
      "run.hardware ({}) has no times of collectives, so parallel.overlap goes by nominal rates; "
      "`tessera bench collectives --hardware {}` measures them on the ranks of a launcher",
      path, path);
}

void overlap(StepPrograms& programs, const OverlapOptions& options,
             const std::function<StepPrograms(int rank)>& programs_of) {
  const MeshRank mesh_rank = programs.mesh_rank();
  if (mesh_rank.mesh.ranks() == 1) return;
  const int first = first_of_stage(mesh_rank);
  std::optional<StepPrograms> others;
  if (first != mesh_rank.rank) others = programs_of(first);
  for (size_t set = 0; set < programs.sets.size(); ++set) {
    const std::vector<StageList> lists = programs.step_lists(static_cast<int>(set));
    Passes& passes = programs.sets[set];
    for (size_t i = 0; i < passes.chunks.size(); ++i) {
      Program& program = passes.chunks[i].program;
      const std::vector<Segment> segments =
          segments_of(lists, programs.chunk_number(static_cast<int>(set), i));
      put_in_order(program, others ? others->sets[set].chunks[i].program : program, segments,
                   options);
    }
  }
  const std::vector<const Program*> list = programs.list();
  put_first(programs.update.program,
            find_early_sums(list, programs.update.program, programs.step_lists(0).front()));
  programs.overlap_memory = options.memory;
}

}  // namespace tessera
