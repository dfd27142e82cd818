// OrderSearch plays a segment: it keeps the time of the compute lane and of each other lane, and
// takes one node after the other. The *frontier* is the first node of the written order that was
// not taken. It may always be taken, so that the search ends.

#include "engine/overlap.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "engine/touched_memory.h"
#include "program/is_kept.h"
#include "tensor/alignment.h"

namespace tessera {
namespace {

/// The dependencies between the nodes of a segment, by their index in the written order.
struct Dependencies {
  std::vector<std::vector<int>> needed;      // by node: the earlier ones that must come before
  std::vector<std::vector<int>> dependents;  // by node: the later ones that must come after
};

/// The value that owns memory: a kept value by its name, another by its id.
using Memory = std::tuple<ValueKind, std::string, int>;

Memory memory_of(const Program& program, Value base) {
  const ValueInfo& info = program.info(base);
  if (is_kept(info)) return {info.kind, info.name, -1};
  return {info.kind, "", base.id};
}

Dependencies find_dependencies(const Program& program, std::span<const int> nodes) {
  struct Uses {
    int writer = -1;
    std::vector<int> readers = {};  // since the last writer
  };
  std::map<Memory, Uses> uses;
  Dependencies result{.needed = std::vector<std::vector<int>>(nodes.size()),
                      .dependents = std::vector<std::vector<int>>(nodes.size())};
  for (int i = 0; i < std::ssize(nodes); ++i) {
    const Node& node = program.nodes()[static_cast<size_t>(nodes[static_cast<size_t>(i)])];
    const TouchedMemory<Memory> touched(program, node,
                                        [&](Value base) { return memory_of(program, base); });
    std::set<int> needed;
    for (const Memory& memory : touched.all) {
      if (touched.written.contains(memory)) continue;
      Uses& use = uses[memory];
      if (use.writer >= 0) needed.insert(use.writer);
      use.readers.push_back(i);
    }
    for (const Memory& memory : touched.written) {
      Uses& use = uses[memory];
      if (use.writer >= 0) needed.insert(use.writer);
      needed.insert(use.readers.begin(), use.readers.end());
      use = {.writer = i};
    }
    for (const int other : needed) {
      result.needed[static_cast<size_t>(i)].push_back(other);
      result.dependents[static_cast<size_t>(other)].push_back(i);
    }
  }
  return result;
}

/// Follows nodes of a segment as they are taken, by their index in the written order, and counts
/// the bytes in use. What a node of another lane uses is in use until a node of the compute lane is
/// taken that awaits it, or awaits a later one of its lane.
class LiveBytes {
 public:
  /// `later` are the nodes of later segments.
  LiveBytes(const Program& program, std::span<const int> nodes, std::span<const int> later,
            const Dependencies& dependencies, const Target& target)
      : dependencies_(dependencies), made_(nodes.size(), 0), users_(nodes.size()) {
    std::map<int, std::vector<int>> users;  // by base: the nodes that use it, in order
    for (int i = 0; i < std::ssize(nodes); ++i) {
      const Node& node = program.nodes()[static_cast<size_t>(nodes[static_cast<size_t>(i)])];
      lanes_.push_back(node.operation->lane());
      const int64_t workspace = node.operation->workspace_bytes(target, program.specs(node.inputs));
      workspaces_.push_back(workspace == 0 ? 0 : aligned_bytes(workspace));
      for (const auto* values : {&node.inputs, &node.outputs}) {
        for (const Value value : *values) {
          std::vector<int>& of = users[program.base(value).id];
          if (of.empty() || of.back() != i) of.push_back(i);
        }
      }
      for (const Value output : node.outputs) {
        if (is_freed(program, output)) made_[index(i)] += bytes(program, output);
      }
    }
    const std::set<int> kept = bases_used_by(program, later);
    for (auto& [base, of] : users) {
      const Value value{base};
      if (!is_freed(program, value) || kept.contains(base) || program.is_output(value)) continue;
      const auto number = static_cast<int>(values_.size());
      values_.push_back({.bytes = bytes(program, value), .users = static_cast<int>(of.size())});
      for (const int node : of) users_[index(node)].push_back(number);
    }
  }

  int64_t now() const { return now_; }

  /// The bytes while a node runs that is taken next, and when it is done.
  struct Taken {
    int64_t during = 0;
    int64_t after = 0;
  };
  Taken if_taken(int node) const {
    const std::vector<int> ended = ended_by(node);
    int64_t during = now_ + made_[index(node)] + workspaces_[index(node)];
    int64_t after = during;
    std::map<int, int> uses;  // by value: how many end
    for (const int other : ended) {
      // What the node awaits has ended when it runs.
      if (other != node) during -= workspaces_[index(other)];
      after -= workspaces_[index(other)];
      for (const int value : users_[index(other)]) {
        if (++uses[value] == values_[index(value)].users) after -= values_[index(value)].bytes;
      }
    }
    return {during, after};
  }
  void take(int node) {
    now_ = if_taken(node).after;
    for (const int other : ended_by(node)) {
      for (const int value : users_[index(other)]) --values_[index(value)].users;
      if (other != node) std::erase(at_work(other), other);
    }
    if (lanes_[index(node)] != Lane::compute) at_work(node).push_back(node);
  }

 private:
  /// A value that the segment frees, and how many nodes have yet to end that use it.
  struct Freed {
    int64_t bytes = 0;
    int users = 0;
  };

  static size_t index(int number) { return static_cast<size_t>(number); }
  static bool is_freed(const Program& program, Value value) {
    const ValueInfo& info = program.info(value);
    return info.kind == ValueKind::computed && !info.view;
  }
  static int64_t bytes(const Program& program, Value value) {
    return aligned_bytes(program.spec(value).bytes());
  }
  static std::set<int> bases_used_by(const Program& program, std::span<const int> nodes) {
    std::set<int> result;
    for (const int node : nodes) {
      for (const Value input : program.nodes()[static_cast<size_t>(node)].inputs) {
        result.insert(program.base(input).id);
      }
    }
    return result;
  }

  std::vector<int>& at_work(int node) { return at_work_[static_cast<size_t>(lanes_[index(node)])]; }

  /// Returns the nodes that end if a node is taken: of the compute lane itself, and those of other
  /// lanes that are known to be done then.
  std::vector<int> ended_by(int node) const {
    if (lanes_[index(node)] != Lane::compute) return {};
    std::vector<int> result{node};
    for (size_t i = 0; i < result.size(); ++i) {
      for (const int other : dependencies_.needed[index(result[i])]) {
        const std::vector<int>& lane = at_work_[static_cast<size_t>(lanes_[index(other)])];
        const auto last = std::ranges::find(lane, other);
        if (last == lane.end()) continue;
        for (auto known = lane.begin(); known <= last; ++known) {
          if (std::ranges::find(result, *known) == result.end()) result.push_back(*known);
        }
      }
    }
    return result;
  }

  const Dependencies& dependencies_;
  std::vector<Lane> lanes_;              // by node
  std::vector<int64_t> made_;            // by node: the bytes of its results
  std::vector<int64_t> workspaces_;      // by node
  std::vector<std::vector<int>> users_;  // by node: the values, as indices in values_
  std::vector<Freed> values_;
  std::array<std::vector<int>, kLanes> at_work_;  // by lane: taken and not known to be done
  int64_t now_ = 0;
};

class OrderSearch {
 public:
  OrderSearch(const Program& program, std::span<const int> nodes, std::span<const int> later,
              const OverlapOptions& options)
      : options_(options),
        dependencies_(find_dependencies(program, nodes)),
        live_(program, nodes, later, dependencies_, options.target),
        unmet_(nodes.size()),
        done_(nodes.size(), 0) {
    LiveBytes written = live_;
    for (int i = 0; i < std::ssize(nodes); ++i) {
      const Node& node = program.nodes()[static_cast<size_t>(nodes[static_cast<size_t>(i)])];
      lanes_.push_back(node.operation->lane());
      seconds_.push_back(options.seconds(program, node));
      written_before_.push_back(written.now());
      written_during_.push_back(written.if_taken(i).during);
      written.take(i);
      unmet_[index(i)] = static_cast<int>(dependencies_.needed[index(i)].size());
      if (unmet_[index(i)] == 0) ready_.insert(i);
    }
  }

  /// Returns the nodes in their new order, as indices in the written one.
  std::vector<int> find() {
    while (order_.size() < lanes_.size()) {
      const int next = next_compute();
      begin_others(next);
      // The frontier may be a node of another lane, which no lane is free for yet.
      take(next >= 0 ? next : *ready_.begin());
    }
    return std::move(order_);
  }

 private:
  /// How many nodes that are ready are looked at for one that need not wait.
  static constexpr int kCandidates = 64;

  static size_t index(int node) { return static_cast<size_t>(node); }
  static size_t index(Lane lane) { return static_cast<size_t>(lane); }
  int frontier() const { return *ready_.begin(); }  // what it needs was taken, as all before it

  /// Returns whether a node leaves memory within the bound.
  bool fits(int node) const {
    if (node == frontier()) return true;
    const auto [during, after] = live_.if_taken(node);
    return during <= written_during_[index(frontier())] + options_.memory &&
           after <= written_before_[index(frontier())] + options_.memory;
  }

  /// Returns when all that a node needs is done.
  double available(int node) const {
    double result = 0;
    for (const int other : dependencies_.needed[index(node)]) {
      result = std::max(result, done_[index(other)]);
    }
    return result;
  }

  /// Returns the node that the compute lane takes next: the first that need not wait, or the one
  /// that waits least. Returns -1 if none may be taken.
  int next_compute() const {
    int best = -1;
    double least = 0;
    int candidates = 0;
    for (const int node : ready_) {
      if (lanes_[index(node)] != Lane::compute) continue;
      if (++candidates > kCandidates) break;
      if (!fits(node)) continue;
      const double wait = available(node) - compute_time();
      if (wait <= 0) return node;
      if (best < 0 || wait < least) {
        best = node;
        least = wait;
      }
    }
    return best;
  }

  /// Takes nodes of other lanes that are free before the compute lane has done `next`.
  void begin_others(int next) {
    const double until = next < 0
                             ? compute_time()
                             : std::max(compute_time(), available(next)) + seconds_[index(next)];
    const std::vector<int> ready(ready_.begin(), ready_.end());
    std::array<bool, kLanes> passed{};  // whether an earlier node of the lane was left
    for (const int node : ready) {
      const Lane lane = lanes_[index(node)];
      if (lane == Lane::compute) continue;
      const bool is_free = std::max(times_[index(lane)], available(node)) <= until;
      if (!passed[index(lane)] && is_free && fits(node)) {
        take(node);
      } else {
        passed[index(lane)] = true;
      }
    }
  }

  double compute_time() const { return times_[index(Lane::compute)]; }

  void take(int node) {
    const Lane lane = lanes_[index(node)];
    // A step of another lane begins after all of the compute lane's before it.
    double begin = std::max(times_[index(lane)], available(node));
    if (lane != Lane::compute) begin = std::max(begin, compute_time());
    times_[index(lane)] = done_[index(node)] = begin + seconds_[index(node)];
    live_.take(node);
    order_.push_back(node);
    ready_.erase(node);
    for (const int other : dependencies_.dependents[index(node)]) {
      if (--unmet_[index(other)] == 0) ready_.insert(other);
    }
  }

  const OverlapOptions& options_;
  Dependencies dependencies_;
  LiveBytes live_;
  std::vector<Lane> lanes_;              // by node
  std::vector<double> seconds_;          // by node
  std::vector<int64_t> written_before_;  // by node: the bytes in use before it as written
  std::vector<int64_t> written_during_;  // by node: those while it runs
  std::vector<int> unmet_;               // by node: how many that it needs were not taken
  std::vector<double> done_;             // by node that was taken
  std::array<double, kLanes> times_{};   // by lane: when it has done what was taken
  std::set<int> ready_;                  // not taken, but all that they need was
  std::vector<int> order_;
};

/// Returns the order of all nodes: those that run as `running` has them, and each view before its
/// first use.
std::vector<int> with_views(const Program& program, std::span<const int> running) {
  std::vector<int> maker(program.values().size(), -1);
  for (int i = 0; i < std::ssize(program.nodes()); ++i) {
    for (const Value output : program.nodes()[static_cast<size_t>(i)].outputs) {
      maker[static_cast<size_t>(output.id)] = i;
    }
  }
  const std::set<int> runs(running.begin(), running.end());
  std::set<int> taken;
  std::vector<int> order;
  const auto take = [&](auto&& self, int index) -> void {
    if (!taken.insert(index).second) return;
    for (const Value input : program.nodes()[static_cast<size_t>(index)].inputs) {
      const int made_by = input ? maker[static_cast<size_t>(input.id)] : -1;
      if (made_by >= 0 && !runs.contains(made_by)) self(self, made_by);
    }
    order.push_back(index);
  };
  const auto take_views = [&](auto&& is_due) {
    for (int index = 0; index < std::ssize(program.nodes()); ++index) {
      if (!runs.contains(index) && is_due(program.nodes()[static_cast<size_t>(index)])) {
        take(take, index);
      }
    }
  };
  bool is_forward = true;
  for (const int index : running) {
    const bool ends_forward = program.nodes()[static_cast<size_t>(index)].phase != Phase::forward;
    if (is_forward && ends_forward) {
      take_views([](const Node& view) { return view.phase == Phase::forward; });
      is_forward = false;
    }
    take(take, index);
  }
  take_views([](const Node&) { return true; });
  return order;
}

}  // namespace

std::vector<int> overlapped_order(const Program& program, std::span<const Segment> segments,
                                  const OverlapOptions& options) {
  std::vector<std::vector<int>> nodes_of;  // by segment
  for (const Segment segment : segments) nodes_of.push_back(segment_nodes(program, segment));
  std::vector<int> order;
  bool is_any_moved = false;
  for (size_t segment = 0; segment < segments.size(); ++segment) {
    const std::vector<int>& nodes = nodes_of[segment];
    std::vector<int> later;
    for (size_t other = segment + 1; other < segments.size(); ++other) {
      later.insert(later.end(), nodes_of[other].begin(), nodes_of[other].end());
    }
    const auto is_other = [&](int node) {
      return program.nodes()[static_cast<size_t>(node)].operation->lane() != Lane::compute;
    };
    if (std::ranges::none_of(nodes, is_other)) {
      order.insert(order.end(), nodes.begin(), nodes.end());
      continue;
    }
    const std::vector<int> found = OrderSearch(program, nodes, later, options).find();
    is_any_moved = is_any_moved || !std::ranges::is_sorted(found);
    for (const int node : found) order.push_back(nodes[static_cast<size_t>(node)]);
  }
  if (!is_any_moved) return {};
  return with_views(program, order);
}

}  // namespace tessera
