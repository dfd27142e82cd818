#include "plan/early_sums.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "base/error.h"
#include "engine/touched_memory.h"
#include "program/is_kept.h"

namespace tessera {
namespace {

bool sums_gradients(const Program& update, const Node& node) {
  return std::ranges::any_of(node.operation->updated_inputs(), [&](int input) {
    const Value changed = node.inputs[static_cast<size_t>(input)];
    return update.info(update.base(changed)).kind == ValueKind::main_gradient;
  });
}

bool may_be_early(const Program& update, const Node& node) {
  if (node.operation->lane() != Lane::reductions || !sums_gradients(update, node)) return false;
  const Axis pipeline = update.mesh().pipeline();
  const auto crosses_stages = [&](const std::vector<Axis>& axes) {
    return std::ranges::find(axes, pipeline) != axes.end() && update.mesh().size(pipeline) > 1;
  };
  return std::ranges::none_of(node.operation->group_axes(), crosses_stages) &&
         std::ranges::all_of(node.inputs,
                             [&](Value input) { return is_kept(update.info(update.base(input))); });
}

/// The steps of a list that use kept values last.
class LastUses {
 public:
  LastUses(std::span<const Program* const> programs, const StageList& list) : programs_(programs) {
    // The passes of the last micro-batch use all that any micro-batch does.
    for (int entry = static_cast<int>(std::ssize(list.entries)) - 1; entry >= 0; --entry) {
      const auto* const action =
          std::get_if<StageAction>(&list.entries[static_cast<size_t>(entry)]);
      if (action == nullptr || !seen_.emplace(action->run.program, action->run.segment).second) {
        continue;
      }
      add(action->run, entry);
    }
  }

  /// Returns the last step that uses one of the values; before the list if none does.
  std::pair<int, int> of(const std::set<KeptName>& names) const {
    std::pair<int, int> last{0, -1};
    for (const KeptName& name : names) {
      const auto found = uses_.find(name);
      if (found != uses_.end()) last = std::max(last, found->second);
    }
    return last;
  }

 private:
  void add(const Action& action, int entry) {
    const Program& program = *programs_[static_cast<size_t>(action.program)];
    const std::vector<int> nodes = segment_nodes(program, action.segment);
    for (int step = 0; step < std::ssize(nodes); ++step) {
      const Node& node = program.nodes()[static_cast<size_t>(nodes[static_cast<size_t>(step)])];
      for (const KeptName& name : touched_kept_values(program, node).all) {
        std::pair<int, int>& last = uses_.try_emplace(name, 0, -1).first->second;
        last = std::max(last, {entry, step});
      }
    }
  }

  std::span<const Program* const> programs_;
  std::set<std::pair<int, Segment>> seen_;  // programs and their segments
  std::map<KeptName, std::pair<int, int>> uses_;
};

/// Lets steps of the update run before a step of the entry's own segment.
void insert_before(StageAction& entry, int step, const Action& of_update) {
  std::vector<Action>& parts = entry.parts;
  if (parts.empty()) parts.push_back(entry.run);
  auto at = std::ranges::find_if(parts, [&](const Action& part) {
    return part.program == entry.run.program && part.micro_batch == entry.run.micro_batch &&
           part.steps.begin <= step && step < part.steps.end;
  });
  TESSERA_CHECK(at != parts.end(), "step {} of an action of program {} is in none of its parts",
                step, entry.run.program);
  if (at->steps.begin < step) {
    Action before = *at;
    before.steps.end = at->steps.begin = step;
    at = parts.insert(at, before) + 1;
  }
  if (at != parts.begin() && std::prev(at)->program == of_update.program) {
    std::prev(at)->steps.end = of_update.steps.end;
  } else {
    parts.insert(at, of_update);
  }
}

}  // namespace

std::vector<EarlySum> find_early_sums(std::span<const Program* const> programs,
                                      const Program& update, const StageList& list) {
  std::vector<EarlySum> result;
  TouchedMemory<KeptName> before;  // what the nodes of the update touch that do not begin early
  const std::vector<int> nodes = segment_nodes(update, Segment::whole);
  const LastUses last_uses(programs, list);
  for (int step = 0; step < std::ssize(nodes); ++step) {
    const Node& node = update.nodes()[static_cast<size_t>(nodes[static_cast<size_t>(step)])];
    const TouchedMemory<KeptName> own = touched_kept_values(update, node);
    if (may_be_early(update, node) && !own.conflicts_with(before)) {
      const auto [entry, entry_step] = last_uses.of(own.all);
      result.push_back({.step = step, .entry = entry, .entry_step = entry_step});
    } else {
      before.add(own);
    }
  }
  std::ranges::stable_sort(
      result, {}, [](const EarlySum& sum) { return std::pair(sum.entry, sum.entry_step); });
  return result;
}

void put_first(Program& update, std::span<const EarlySum> sums) {
  const std::vector<int> steps = segment_nodes(update, Segment::whole);
  std::vector<int> order;
  std::set<int> taken;
  const auto take = [&](int node) {
    if (taken.insert(node).second) order.push_back(node);
  };
  std::map<int, int> maker;  // by value: the node that makes it
  for (int node = 0; node < std::ssize(update.nodes()); ++node) {
    for (const Value output : update.nodes()[static_cast<size_t>(node)].outputs) {
      maker[output.id] = node;
    }
  }
  for (const EarlySum& sum : sums) {
    const int node = steps[static_cast<size_t>(sum.step)];
    for (const Value input : update.nodes()[static_cast<size_t>(node)].inputs) {
      if (const auto made = maker.find(input.id); made != maker.end())
        take(made->second);  // a view
    }
    take(node);
  }
  for (int node = 0; node < std::ssize(update.nodes()); ++node) take(node);
  update.reorder(order);
}

void begin_sums(StageList& list, std::span<const Program* const> programs, int update_number,
                int count) {
  const Program& update = *programs[static_cast<size_t>(update_number)];
  std::vector<EarlySum> sums = find_early_sums(programs, update, list);
  std::ranges::sort(sums, {}, &EarlySum::step);
  std::map<std::pair<int, Segment>, int> step_counts;
  const auto step_count = [&](const Action& action) {
    const auto [found, is_new] = step_counts.try_emplace({action.program, action.segment});
    if (is_new) {
      const Program& program = *programs[static_cast<size_t>(action.program)];
      found->second = static_cast<int>(segment_nodes(program, action.segment).size());
    }
    return found->second;
  };
  std::pair<int, int> at{0, 0};  // where the next sum may begin: an entry, and a step of it
  for (const EarlySum& sum : sums) {
    // The sums that begin early are the first steps.
    if (sum.step != list.update_steps || sum.step == count) break;
    at = std::max(at, {sum.entry, sum.entry_step + 1});
    const auto action_at = [&]() -> StageAction* {
      return at.first < std::ssize(list.entries)
                 ? std::get_if<StageAction>(&list.entries[static_cast<size_t>(at.first)])
                 : nullptr;
    };
    while (at.first < std::ssize(list.entries)) {
      const StageAction* const action = action_at();
      if (action != nullptr && at.second < step_count(action->run)) break;
      at = {at.first + 1, 0};
    }
    StageAction* const action = action_at();
    if (action == nullptr) break;
    insert_before(*action, at.second,
                  {.program = update_number, .steps = {.begin = sum.step, .end = sum.step + 1}});
    ++list.update_steps;
  }
}

}  // namespace tessera
