#include "pipeline/agree_on_lists.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "comm/agree_on_calls.h"
#include "pipeline/stage_runner.h"

namespace tessera {
namespace {

/// The lists of the calls of one rank, by communicator.
class CallLists {
 public:
  explicit CallLists(Executor& executor) : executor_(executor) {
    const Mesh& mesh = executor.program(0).mesh();
    if (mesh.size(mesh.pipeline()) == 1) return;
    // Stages need the lanes of messages in different orders, but all must make them in one.
    for (const BoundaryKind kind : {BoundaryKind::activations, BoundaryKind::gradients}) {
      list_of(lane_of(executor, kind));
    }
  }

  /// Adds the calls of the actions, in their order.
  void add(std::span<const ListEntry> actions) {
    for (const ListEntry& entry : actions) {
      if (const auto* const action = std::get_if<Action>(&entry)) add(*action);
    }
  }

  /// Adds the messages of a stage's list.
  void add(const StageList& list) {
    std::map<CallList*, int> parts;  // of this list, by lane
    for (const StageEntry& entry : list.entries) {
      const auto* const message = std::get_if<StageMessage>(&entry);
      if (message == nullptr || !message->hold.begins) continue;
      CallList& lane = list_of(lane_of(executor_, message->message.kind));
      if (!parts.contains(&lane)) parts[&lane] = lane.begin_part();
      add(*message, lane);
    }
    for (const auto& [lane, part] : parts) lane->run(part);
  }

  /// Compares the lists, in the order in which the communicators were first needed: it is the same
  /// on all ranks of a stage, and stages meet in the update alone.
  void agree() const {
    for (Communicator* const group : order_) agree_on_calls(*group, lists_.at(group));
  }

 private:
  CallList& list_of(Communicator& group) {
    const auto found = lists_.find(&group);
    if (found != lists_.end()) return found->second;
    order_.push_back(&group);
    const std::vector<int> ranks(group.ranks().begin(), group.ranks().end());
    return lists_.emplace(&group, CallList(ranks, group.position())).first->second;
  }

  void add(const Action& action) {
    const auto [known, is_new] = segments_.try_emplace(
        {action.program, action.segment, action.steps.begin, action.steps.end});
    if (is_new) known->second = write_steps(action);
    for (const auto& [list, part] : known->second) list->run(part);
  }

  /// A part of each list in which steps of a segment make calls.
  using Parts = std::vector<std::pair<CallList*, int>>;

  Parts write_steps(const Action& action) {
    const Program& program = executor_.program(action.program);
    const ProgramMemory& memory = executor_.plan().programs[static_cast<size_t>(action.program)];
    const auto segment = std::ranges::find(memory.order, action.segment) - memory.order.begin();
    Parts parts;
    const std::vector<int>& nodes = memory.nodes[static_cast<size_t>(segment)];
    const int end = std::min(action.steps.end, static_cast<int>(nodes.size()));
    for (int step = action.steps.begin; step < end; ++step) {
      const int index = nodes[static_cast<size_t>(step)];
      const Node& node = program.nodes()[static_cast<size_t>(index)];
      std::vector<CallList*> groups;
      for (Communicator* const group :
           executor_.groups(action.program, static_cast<size_t>(index))) {
        CallList& list = *groups.emplace_back(&list_of(*group));
        const auto is_known = [&](const auto& part) { return part.first == &list; };
        if (std::ranges::none_of(parts, is_known)) parts.emplace_back(&list, list.begin_part());
      }
      if (groups.empty()) continue;
      const std::vector<Spec> inputs = program.specs(node.inputs);
      const std::vector<Spec> outputs = program.specs(node.outputs);
      node.operation->list_calls({.target = executor_.runtime().target(),
                                  .inputs = inputs,
                                  .outputs = outputs,
                                  .name = program.name_of(node),
                                  .groups = groups});
    }
    return parts;
  }

  void add(const StageMessage& message, CallList& lane) {
    const bool sends = message.call == MessageCall::post_send;
    const Program& program = executor_.program(message.hold.program);
    for (size_t i = 0; i < message.hold.values.size(); ++i) {
      const Spec& spec = program.spec(message.hold.values[i]);
      const std::string name = name_of(message.message, i);
      sends ? lane.send(name, message.peer, spec.dtype, spec.shape)
            : lane.receive(name, message.peer, spec.dtype, spec.shape);
    }
  }

  Executor& executor_;
  std::map<Communicator*, CallList> lists_;
  std::vector<Communicator*> order_;
  std::map<std::tuple<int, Segment, int, int>, Parts> segments_;  // by program and steps
};

}  // namespace

void agree_on_lists(const RankControl& control, Executor& executor,
                    std::span<const ListEntry> actions, std::span<const StageList> lists) {
  const int ranks = executor.program(0).mesh().ranks();
  if (ranks == 1) return;
  TESSERA_CHECK(control.several(), "{} ranks compare their lists of calls without a control",
                ranks);
  executor.join_groups();
  CallLists calls(executor);
  calls.add(actions);
  for (const StageList& list : lists) calls.add(list);
  calls.agree();
  control.wait();
}

}  // namespace tessera
