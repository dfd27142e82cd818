#include "train/timed_rank.h"

#include <algorithm>

#include "base/monotonic.h"
#include "engine/compute_clock.h"
#include "model/expert_layout.h"
#include "ops/host_target.h"
#include "pipeline/agree_on_lists.h"
#include "plan/batch_inputs.h"
#include "plan/chunk_times.h"

namespace tessera {
namespace {

/// Waits as long as a pass takes beside its nodes.
void wait(double seconds) {
  ComputeClock clock;
  clock.add(seconds);
  clock.join();
}

/// Returns whether a node makes whole numbers, such as the experts that a router chooses, and how
/// many rows each of them gets.
bool makes_whole_numbers(const Program& program, const Node& node) {
  return std::ranges::any_of(
      node.outputs, [&](Value output) { return program.spec(output).dtype == DType::i32; });
}

}  // namespace

bool exchanges_rows(const RunConfig& config) {
  const ParallelSection& parallel = config.parallel;
  const ExpertLayout layout{.exchange = parallel.expert_exchange};
  return parallel.expert > 1 && layout.sends_rows(config.model.experts_per_token, parallel.expert);
}

TimedRank::TimedRank(const RunConfig& config, int micro_batches, RankGroups& groups,
                     const RankControl& control, std::span<const int> ranks_here,
                     FoundOrders& found)
    : runtime_(host_target(1)),
      plan_(plan_step_that_fits(config, runtime_.target(), nullptr, {groups.mesh(), groups.rank()},
                                control, ranks_here, found)),
      executor_(plan_.programs.list(), plan_.memory, runtime_),
      runner_(executor_),
      list_(plan_.programs.step_list(0, micro_batches)),
      counts_rows_(exchanges_rows(config)) {
  runtime_.join(groups);
  agree_on_lists(control, executor_, plan_.programs.actions(), plan_.programs.stage_lists());
  write_update_inputs();
}

std::vector<ChunkTimes> TimedRank::passes(const NodeSeconds* seconds) const {
  std::vector<ChunkTimes> result;
  for (const Chunk& chunk : plan_.programs.chunks()) {
    result.push_back(chunk_times(chunk.program, [&](const Node& node) {
      return seconds != nullptr ? seconds->work(chunk.program, node)
                                : node_flops(chunk.program, node);
    }));
  }
  return result;
}

void TimedRank::set_times(const ScheduleTimes& times, bool computes_update,
                          const NodeSeconds* seconds) {
  times_ = times;
  const MeshRank mesh_rank = plan_.mesh_rank();
  const std::vector<int> chunks =
      plan_.programs.sets.front().placement.chunks_of(mesh_rank.mesh.stage(mesh_rank.rank));
  for (size_t i = 0; i < chunks.size() && seconds == nullptr; ++i) {
    const Program& program = plan_.programs.chunks()[i].program;
    const ChunkTimes& chunk_times = times.chunks[static_cast<size_t>(chunks[i])];
    node_times_[&program] = node_times(program, chunk_times);
  }
  for (const Program* const program : plan_.programs.list()) {
    if (seconds == nullptr) break;
    std::vector<double>& of_nodes = node_times_[program];
    for (const Node& node : program->nodes()) of_nodes.push_back(seconds->work(*program, node));
  }
  executor_.set_node_seconds(
      [this, computes_update](const Program& program, const Node& node) -> std::optional<double> {
        if (counts_rows_ && makes_whole_numbers(program, node)) return std::nullopt;
        const auto found = node_times_.find(&program);
        if (found != node_times_.end()) {
          return found->second[static_cast<size_t>(&node - program.nodes().data())];
        }
        if (computes_update && &program == &executor_.program(plan_.programs.update_number())) {
          return std::nullopt;
        }
        return 0.0;
      });
}

void TimedRank::write_update_inputs() {
  const UpdateProgram& update = plan_.programs.update;
  const auto write = [&](Value value, double number) {
    write_scalar(executor_, executor_.tensor(value, plan_.programs.update_number()), number);
  };
  write(update.learning_rate, 1e-3);
  write(update.clip_norm, 0);
  write(update.step, 1);
}

double TimedRank::update_scale() const {
  const UpdateProgram& update = plan_.programs.update;
  return executor_.tensor(update.scale, plan_.programs.update_number()).values<double>()[0];
}

TimedStep TimedRank::run(double ahead) {
  TimedStep result;
  const auto now = [&] { return monotonic_seconds() + ahead; };
  result.start = now();
  executor_.run(plan_.programs.start_action());
  runner_.run(list_, [&](const StageAction& entry) {
    const double seconds_of_nodes = this->seconds_of_nodes(entry.run);
    const double start = now();
    const double seconds = times_.of(entry.action);
    result.actions.push_back({.action = entry.action, .start = start, .end = start + seconds});
    wait(seconds - seconds_of_nodes);
  });
  result.list_end = now();
  executor_.run(plan_.programs.update_action(list_));
  result.end = now();
  return result;
}

double TimedRank::seconds_of_nodes(const Action& action) {
  const auto [found, is_new] = seconds_of_nodes_.try_emplace({action.program, action.segment});
  if (is_new) {
    const Program& program = executor_.program(action.program);
    for (const int node : segment_nodes(program, action.segment)) {
      found->second += node_times_.at(&program)[static_cast<size_t>(node)];
    }
  }
  return found->second;
}

}  // namespace tessera
