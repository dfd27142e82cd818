#include "plan/overlap_step.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "base/error.h"
#include "engine/memory_plan.h"
#include "engine/touched_memory.h"
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

int first_of_stage(const Mesh& mesh, int stage) {
  int rank = 0;
  while (mesh.stage(rank) != stage) ++rank;
  return rank;
}

/// How the programs of a stage's ranks overlap.
struct StepOrders {
  std::vector<std::vector<int>> programs;  ///< of ordered_programs(): see Program::reorder()
  int early_sums = 0;
  std::vector<MicroBatchTurns> turns;  ///< by set of passes
};

/// A program whose nodes are put into order, and the segments that lists run.
struct OrderedProgram {
  Program* program = nullptr;
  std::vector<Segment> segments;
};

std::vector<OrderedProgram> ordered_programs(StepPrograms& programs) {
  std::vector<OrderedProgram> result;
  for (int set = 0; set < std::ssize(programs.sets); ++set) {
    const std::vector<StageList> lists = programs.step_lists(set);
    std::vector<Chunk>& chunks = programs.sets[static_cast<size_t>(set)].chunks;
    for (size_t i = 0; i < chunks.size(); ++i) {
      result.push_back({&chunks[i].program, segments_of(lists, programs.chunk_number(set, i))});
    }
    std::optional<EvaluationPasses>& evaluation =
        programs.sets[static_cast<size_t>(set)].evaluation;
    if (!evaluation) continue;
    const int first = programs.evaluation_number(set);
    const std::array list{evaluation->list(first)};
    for (size_t i = 0; i < evaluation->chunks.size(); ++i) {
      result.push_back(
          {&evaluation->chunks[i].program, segments_of(list, first + static_cast<int>(i))});
    }
  }
  return result;
}

void apply(const StepOrders& orders, StepPrograms& programs) {
  const std::vector<OrderedProgram> ordered = ordered_programs(programs);
  for (size_t i = 0; i < ordered.size(); ++i) {
    if (!orders.programs[i].empty()) ordered[i].program->reorder(orders.programs[i]);
  }
  std::vector<EarlySum> sums =
      find_early_sums(programs.list(), programs.update.program, programs.step_lists(0).front());
  sums.resize(std::min(sums.size(), static_cast<size_t>(orders.early_sums)));
  put_first(programs.update.program, sums);
  programs.early_sums = orders.early_sums;
  for (size_t set = 0; set < programs.sets.size(); ++set) {
    programs.sets[set].turns = orders.turns[set];
  }
}

/// Finds the orders of a stage from the programs of its first rank, as they were written.
class OrdersSearch {
 public:
  OrdersSearch(const StepPrograms& written, const OverlapOptions& options)
      : written_(written), options_(options), most_bytes_(live_bytes(written) + options.memory) {}

  StepOrders find() {
    orders_.programs.resize(ordered_programs(written_).size());
    orders_.turns.resize(written_.sets.size());
    find_orders();
    if (is_slower_than_written()) write_as_it_was();
    for (size_t set = 0; set < written_.sets.size(); ++set) find_turns_of(set);
    return std::move(orders_);
  }

 private:
  void find_orders() {
    const auto sums =
        find_early_sums(written_.list(), written_.update.program, written_.step_lists(0).front());
    const auto all_sums = static_cast<int>(sums.size());
    orders_.early_sums = all_sums;
    if (find_order(options_.memory)) return;
    std::ranges::fill(orders_.programs, std::vector<int>());
    orders_.early_sums = most_sums(all_sums);
    // The order of a program knows nothing of the others, so it may take more than it may.
    constexpr int kSteps = 16;
    for (int64_t memory = options_.memory; !find_order(memory); memory /= kSteps) {
      if (memory > 0) continue;
      std::ranges::fill(orders_.programs, std::vector<int>());
      break;
    }
  }

  /// Returns whether a step is predicted to take longer than in the written order. An order is
  /// found without playing the whole step, so with little memory that may be. Steps of several
  /// stages are not played here.
  bool is_slower_than_written() const {
    if (written_.sets.front().placement.chunks() > 1) return false;
    const StepPrograms programs = overlapped();
    double seconds = 0, seconds_written = 0;  // of a step of each set
    for (size_t set = 0; set < programs.sets.size(); ++set) {
      seconds += step_seconds(programs, set);
      seconds_written += step_seconds(written_, set);
    }
    return seconds > seconds_written;
  }

  void write_as_it_was() {
    std::ranges::fill(orders_.programs, std::vector<int>());
    orders_.early_sums = 0;
  }

  /// Lets the micro-batches of a set of passes take turns, if that makes steps shorter. Of the two
  /// ways, the one that takes less memory goes first.
  void find_turns_of(size_t set) {
    const Passes& passes = written_.sets[set];
    std::string& none_because = orders_.turns[set].none_because;
    if (passes.placement.chunks() > 1) {
      none_because = "the model is in several chunks";
      return;
    }
    if (passes.most_micro_batches == 1) {
      none_because = "a step has one micro-batch";
      return;
    }
    none_because = "no call has to be waited for, or what is added must stay in order";
    StepPrograms programs = overlapped();
    double seconds = step_seconds(programs, set);
    for (const bool in_pairs : {false, true}) {
      const Program& chunk = programs.sets[set].chunks.front().program;
      MicroBatchTurns turns = find_turns(chunk, in_pairs, options_.seconds);
      if (turns.empty()) continue;
      programs.sets[set].turns = turns;
      constexpr double kGain = 0.99;  // less is not worth the memory
      const double with_turns = step_seconds(programs, set);
      if (with_turns >= kGain * seconds) {
        if (orders_.turns[set].empty()) none_because = "a step would take less than 1 % less";
        continue;
      }
      if (live_bytes(programs) > most_bytes_) {
        if (orders_.turns[set].empty()) {
          none_because = "two micro-batches take more than parallel.overlap_memory allows";
        }
        continue;
      }
      seconds = with_turns;
      orders_.turns[set] = std::move(turns);
    }
  }

  /// Predicts a step of as many micro-batches as steps have, or of some.
  double step_seconds(const StepPrograms& programs, size_t set) const {
    constexpr int kMost = 8;
    const int count = std::min(programs.sets[set].most_micro_batches, kMost);
    const ListedStep step{.programs = &programs,
                          .list = programs.step_list(static_cast<int>(set), count)};
    return predict_step(std::span(&step, 1), options_.target,
                        {.node = options_.seconds, .message = {}})
        .seconds;
  }

  int64_t live_bytes(const StepPrograms& programs) const {
    return plan_live_bytes(programs.list(), programs.actions(), options_.target);
  }

  StepPrograms overlapped() const {
    StepPrograms programs = written_;
    apply(orders_, programs);
    return programs;
  }

  bool fits() const { return live_bytes(overlapped()) <= most_bytes_; }

  /// Returns how many of the sums may begin early, all programs being in their written order.
  int most_sums(int all) {
    int fewest = 0;  // that fit
    for (int count = all; fewest < all; count = (fewest + all + 1) / 2) {
      orders_.early_sums = count;
      if (fits()) {
        fewest = count;
      } else {
        all = count - 1;
      }
    }
    return fewest;
  }

  /// Finds orders with this bound. Returns whether they fit.
  bool find_order(int64_t memory) {
    OverlapOptions options = options_;
    options.memory = memory;
    const std::vector<OrderedProgram> ordered = ordered_programs(written_);
    for (size_t i = 0; i < ordered.size(); ++i) {
      orders_.programs[i] = overlapped_order(*ordered[i].program, ordered[i].segments, options);
    }
    return fits();
  }

  StepPrograms written_;
  const OverlapOptions& options_;
  int64_t most_bytes_;
  StepOrders orders_;
};

/// What a node does, as far as the orders of a stage depend on it.
struct OrderedNode {
  std::string operation;
  TouchedMemory<KeptName> kept;

  bool operator==(const OrderedNode& other) const {
    return operation == other.operation && kept.all == other.kept.all &&
           kept.written == other.kept.written;
  }
};

/// Returns the nodes of each of ordered_programs().
std::vector<std::vector<OrderedNode>> ordered_nodes(StepPrograms& programs) {
  std::vector<std::vector<OrderedNode>> result;
  for (const OrderedProgram& ordered : ordered_programs(programs)) {
    std::vector<OrderedNode>& nodes = result.emplace_back();
    for (const Node& node : ordered.program->nodes()) {
      nodes.push_back(
          {std::string(node.operation->name()), touched_kept_values(*ordered.program, node)});
    }
  }
  return result;
}

}  // namespace

struct StageOrders {
  int rank = 0;  ///< the stage's first one
  StepOrders orders;
  std::vector<std::vector<OrderedNode>> nodes;  ///< as the rank's programs were written
};

struct FoundOrders::Slot {
  std::mutex mutex;
  std::optional<StageOrders> orders;
};

FoundOrders::FoundOrders() = default;
FoundOrders::~FoundOrders() = default;

const StageOrders& FoundOrders::of(int stage, const std::function<StageOrders()>& find) {
  Slot* slot = nullptr;
  {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<Slot>& of_stage = slots_[stage];
    if (of_stage == nullptr) of_stage = std::make_unique<Slot>();
    slot = of_stage.get();
  }
  const std::lock_guard lock(slot->mutex);
  if (!slot->orders) slot->orders = find();
  return *slot->orders;
}

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
    seconds += kLatency + static_cast<double>(program.spec(value).bytes()) / kWire;
  }
  return seconds;
}

Target overlap_target(Device device) {
  return {.device = device,
          .instructions = MatrixInstructions::avx512_bf16,
          .caches = {.first_level = 32 << 10, .second_level = 1 << 20, .last_level = 32 << 20}};
}

StepOverlap step_overlap(const RunConfig& config, const Mesh& mesh) {
  StepOverlap result{.options = {.seconds = nominal_seconds,
                                 .memory = config.parallel.overlap_memory.count,
                                 .target = overlap_target(config.run.device)},
                     .messages = nominal_seconds_of_messages,
                     .times = "nominal rates"};
  const std::string& path = config.run.hardware;
  if (path.empty()) return result;
  const NodeSeconds seconds(read_hardware(path), path, run_target(config));
  if (!seconds.knows_calls(mesh)) return result;
  result.times = path;
  result.options.seconds = seconds;
  result.messages = [seconds](const Program& program, std::span<const Value> values, int peer) {
    return seconds.messages(program, values, peer);
  };
  return result;
}

std::string overlap_warning(const RunConfig& config, const Mesh& mesh) {
  const std::string& path = config.run.hardware;
  if (mesh.ranks() == 1 || path.empty() || !config.parallel.overlap) return "";
  if (step_overlap(config, mesh).times == path) return "";
  std::string warning = fmt::format(
      "run.hardware ({}) has no times of collectives among these ranks, so parallel.overlap goes "
      "by nominal rates",
      path);
  // Those of accelerators are not measured.
  if (!read_hardware(path).accelerator) {
    warning += fmt::format(
        "; `tessera bench collectives --hardware {}` measures them on the ranks of a launcher",
        path);
  }
  return warning;
}

void overlap(StepPrograms& programs, const OverlapOptions& options,
             const std::function<StepPrograms(int rank)>& programs_of, FoundOrders& found) {
  const MeshRank mesh_rank = programs.mesh_rank();
  const Mesh& mesh = mesh_rank.mesh;
  const int rank = mesh_rank.rank;
  if (mesh.ranks() == 1) return;
  const int stage = mesh.stage(rank);
  const StageOrders& orders = found.of(stage, [&] {
    const int first = first_of_stage(mesh, stage);
    std::optional<StepPrograms> others;
    if (first != rank) others = programs_of(first);
    StepPrograms& written = others ? *others : programs;
    return StageOrders{first, OrdersSearch(written, options).find(), ordered_nodes(written)};
  });
  // Orders and turns of one rank hold for another one if both have the same operations.
  TESSERA_CHECK(ordered_nodes(programs) == orders.nodes,
                "rank {} has other operations than rank {} of its stage", rank, orders.rank);
  apply(orders.orders, programs);
}

}  // namespace tessera
