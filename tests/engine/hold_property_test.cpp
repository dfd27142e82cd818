#include <algorithm>
#include <limits>
#include <random>
#include <set>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "engine/executor.h"
#include "engine/memory_plan.h"
#include "engine/pipeline_chunk.h"
#include "ops/host_target.h"
#include "support/memory_replay.h"
#include "tensor/alignment.h"

namespace tessera {
namespace {

using testing::float_values;
using testing::List;
using testing::PipelineChunk;
/// Two chunks of different sizes on one rank.
struct TwoChunks {
  PipelineChunk chunks[2]{PipelineChunk(2, 96, "first_"), PipelineChunk(1, 160, "second_")};
  std::vector<const Program*> programs{&chunks[0].program, &chunks[1].program};
};

/// Makes a random list that keeps the rules: receives and sends of any number of micro-batches, in
/// any order.
class RandomList {
 public:
  RandomList(const TwoChunks& rank, int micro_batches, std::vector<Segment> segments)
      : rank_(rank), segments_(std::move(segments)), random_(*rc::gen::arbitrary<unsigned>()) {
    for (int program = 0; program < 2; ++program) {
      for (int m = 0; m < micro_batches; ++m) open_.push_back({program, m, 0, {}, {}});
    }
  }

  List make() {
    while (!open_.empty()) {
      const auto index = draw(open_.size());
      move(open_[index]);
      const MicroBatch& moved = open_[index];
      if (moved.done == std::ssize(segments_) && moved.moving.empty()) {
        open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(index));
      }
    }
    return std::move(list_);
  }

 private:
  struct MicroBatch {
    int program;
    int number;
    int done;
    std::vector<Value> moving;
    std::set<int> received;  // or being received
  };

  /// A random number below `end`.
  size_t draw(size_t end) { return random_() % end; }
  const PipelineChunk& chunk(const MicroBatch& of) const { return rank_.chunks[of.program]; }
  /// The segment that uses an input.
  static int segment_of(const PipelineChunk& chunk, Value input) {
    return input == chunk.x ? 0 : 1;
  }

  void add_hold(MicroBatch& of, Value value, bool begins) {
    list_.emplace_back(Hold{of.program, of.number, {value}, begins});
    if (begins) {
      of.moving.push_back(value);
    } else {
      std::erase(of.moving, value);
    }
  }

  /// Adds one entry of a micro-batch, or an action and what it sends.
  void move(MicroBatch& of) {
    if (!of.moving.empty() && draw(3) == 0) {
      return add_hold(of, of.moving[draw(of.moving.size())], false);
    }
    const Value input = draw(2) == 0 ? chunk(of).x : chunk(of).seed;
    if (segment_of(chunk(of), input) >= of.done && !of.received.contains(input.id) &&
        draw(2) == 0) {
      of.received.insert(input.id);
      return add_hold(of, input, true);
    }
    if (of.done == std::ssize(segments_)) return;
    const auto arrives = [&](Value value) {
      return chunk(of).is_received(value) && segment_of(chunk(of), value) == of.done;
    };
    if (std::ranges::any_of(of.moving, arrives)) return;
    list_.emplace_back(Action{segments_[static_cast<size_t>(of.done)], of.program, of.number});
    ++of.done;
    if (of.done > 2 || draw(3) == 0) return;
    add_hold(of, of.done == 1 ? chunk(of).y : chunk(of).dx, true);
  }

  const TwoChunks& rank_;
  std::vector<Segment> segments_;
  std::mt19937 random_;
  std::vector<MicroBatch> open_;
  List list_;
};

/// Memory that is in use from one moment to another. Each node of the list is a moment, and each
/// hold.
struct Place {
  int first = std::numeric_limits<int>::max();
  int last = -1;
  int64_t offset = -1;
  int64_t bytes = 0;
  bool may_be_taken = false;  // computed, and no output: an operation may compute in its place

  void note(int moment) {
    first = std::min(first, moment);
    last = std::max(last, moment);
  }
};

/// Counts anew which memory is in use, in the order of the list, without situations.
class Recount {
 public:
  Recount(const TwoChunks& rank, const MemoryPlan& plan, const List& list)
      : rank_(rank), plan_(plan) {
    for (const ListEntry& entry : list) {
      if (const auto* const action = std::get_if<Action>(&entry)) {
        follow(*action);
      } else {
        follow(std::get<Hold>(entry));
      }
    }
    for (int program = 0; program < 2; ++program) place_kept(program);
    for (const auto& [key, place] : values_) places_.push_back(place);
  }

  void check() const {
    for (size_t i = 0; i < places_.size(); ++i) {
      for (size_t j = 0; j < i; ++j) check_pair(places_[i], places_[j]);
    }
    std::vector<int64_t> live(static_cast<size_t>(moments_));
    for (int moment = 0; moment < moments_; ++moment) {
      std::map<int64_t, int64_t> in_use;  // by offset: what is computed in place counts once
      for (const Place& place : places_) {
        if (place.first <= moment && moment <= place.last) in_use[place.offset] = place.bytes;
      }
      for (const auto& [offset, bytes] : in_use) live[static_cast<size_t>(moment)] += bytes;
    }
    RC_ASSERT(plan_.live_bytes == *std::ranges::max_element(live));
    RC_ASSERT(plan_.arena_bytes >= plan_.live_bytes);
    for (const auto& [node, moments] : nodes_) {
      int64_t most = 0;
      for (const int moment : moments) most = std::max(most, live[static_cast<size_t>(moment)]);
      RC_ASSERT(plan_.programs[node.first].live_bytes[node.second] == most);
    }
  }

 private:
  const Program& program(int number) const { return rank_.chunks[number].program; }
  const ProgramMemory& memory(int number) const {
    return plan_.programs[static_cast<size_t>(number)];
  }

  bool kept(int number, Value value) const {
    const ValueKind kind = program(number).info(value).kind;
    return kind != ValueKind::input && kind != ValueKind::computed;
  }

  Place& value(int number, int micro_batch, Value value) {
    const Value base = program(number).base(value);
    const bool is_kept = kept(number, base);
    Place& place = values_[{number, is_kept ? -1 : micro_batch, base.id}];
    const auto frame = static_cast<size_t>(memory(number).frames.at(micro_batch));
    place.offset = memory(number).values[frame][static_cast<size_t>(base.id)];
    place.bytes = aligned_bytes(program(number).spec(base).bytes());
    place.may_be_taken =
        program(number).info(base).kind == ValueKind::computed && !program(number).is_output(base);
    return place;
  }

  void place_kept(int number) {
    for (int id = 0; id < std::ssize(program(number).values()); ++id) {
      if (!kept(number, Value{id})) continue;
      value(number, 0, Value{id}).note(0);
      value(number, 0, Value{id}).note(moments_ - 1);
    }
  }

  void follow(const Action& action) {
    const auto frame = static_cast<size_t>(memory(action.program).frames.at(action.micro_batch));
    const std::vector<int> nodes = segment_nodes(program(action.program), action.segment);
    const int begin = moments_;
    const int last = begin + std::max(static_cast<int>(nodes.size()), 1) - 1;
    for (const int index : nodes) {
      const auto node_index = static_cast<size_t>(index);
      const Node& node = program(action.program).nodes()[node_index];
      nodes_[{static_cast<size_t>(action.program), node_index}].push_back(moments_);
      for (const Value input : node.inputs) {
        Place& place = value(action.program, action.micro_batch, input);
        place.note(moments_);
        const bool is_input = program(action.program).info(input).kind == ValueKind::input;
        if (is_input && place.first > begin) place.note(begin);
      }
      for (const Value output : node.outputs) {
        Place& place = value(action.program, action.micro_batch, output);
        place.note(moments_);
        if (program(action.program).is_output(output)) place.note(last);
      }
      const int64_t scratch = memory(action.program).workspaces[frame][node_index];
      const int64_t scratch_bytes = memory(action.program).workspace_bytes[node_index];
      if (scratch_bytes > 0) {
        places_.push_back({moments_, moments_, scratch, aligned_bytes(scratch_bytes), false});
      }
      ++moments_;
    }
    moments_ = last + 1;
  }

  void follow(const Hold& hold) {
    for (const Value held : hold.values) value(hold.program, hold.micro_batch, held).note(moments_);
    ++moments_;
  }

  static void check_pair(const Place& a, const Place& b) {
    if (a.last < b.first || b.last < a.first) return;
    const bool disjoint = a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset;
    const auto takes_over = [](const Place& earlier, const Place& later) {
      return earlier.may_be_taken && earlier.last == later.first &&
             earlier.offset == later.offset && earlier.bytes == later.bytes;
    };
    RC_ASSERT(disjoint || takes_over(a, b) || takes_over(b, a));
  }

  const TwoChunks& rank_;
  const MemoryPlan& plan_;
  int moments_ = 0;
  std::map<std::tuple<int, int, int>, Place> values_;  // by program, micro-batch (-1: kept), value
  std::vector<Place> places_;
  std::map<std::pair<size_t, size_t>, std::vector<int>> nodes_;  // by program and node: its moments
};

/// Runs lists with what messages do: what is received may be written at any time of the hold, and
/// what is sent read at any time.
class MessageRun {
 public:
  /// By program, micro-batch (-1 for a gradient) and value.
  using Results = std::map<std::tuple<int, int, int>, std::vector<float>>;

  MessageRun(const TwoChunks& rank, const List& list)
      : rank_(rank),
        list_(list),
        runtime_(host_target(1)),
        executor_(rank.programs, plan_memory(rank.programs, list, runtime_.target()), runtime_) {}

  Results run() {
    Results results;
    received_.clear();
    for (int number = 0; number < 2; ++number) rank_.chunks[number].set_weights(executor_, number);
    for (const ListEntry& entry : list_) {
      if (const auto* const action = std::get_if<Action>(&entry)) {
        follow(*action, results);
      } else {
        follow(std::get<Hold>(entry), results);
      }
    }
    for (int number = 0; number < 2; ++number) {
      const PipelineChunk& chunk = rank_.chunks[number];
      for (const Value weight : chunk.weights) {
        const Value gradient = chunk.program.main_gradient(weight);
        results[{number, -1, weight.id}] = float_values(executor_.tensor(gradient, number));
      }
    }
    return results;
  }

 private:
  void follow(const Action& action, Results& results) {
    const PipelineChunk& chunk = rank_.chunks[action.program];
    for (const Value input : executor_.inputs(action.segment, action.program)) {
      if (received_.contains({action.program, action.micro_batch, input.id})) continue;
      chunk.write(executor_, input, action.program, action.micro_batch);
    }
    executor_.run(action);
    if (action.segment == Segment::weight_gradients) return;
    const Value sent = action.segment == Segment::forward ? chunk.y : chunk.dx;
    results[{action.program, action.micro_batch, sent.id}] =
        float_values(executor_.tensor(sent, action.program, action.micro_batch));
  }

  void follow(const Hold& hold, const Results& results) {
    executor_.hold(hold);
    const PipelineChunk& chunk = rank_.chunks[hold.program];
    for (const Value value : hold.values) {
      const Tensor& tensor = executor_.tensor(value, hold.program, hold.micro_batch);
      const std::tuple key{hold.program, hold.micro_batch, value.id};
      if (!chunk.is_received(value)) {
        RC_ASSERT(float_values(tensor) == results.at(key));
      } else if (hold.begins) {
        std::ranges::fill(tensor.values<float>(), 1e30F);
        received_.insert(key);
      } else {
        RC_ASSERT(float_values(tensor) ==
                  std::vector<float>(static_cast<size_t>(tensor.elements()), 1e30F));
        chunk.write(executor_, value, hold.program, hold.micro_batch);
      }
    }
  }

  const TwoChunks& rank_;
  const List& list_;
  Runtime runtime_;
  Executor executor_;
  std::set<std::tuple<int, int, int>> received_;
};

/// The segments of each micro-batch, one micro-batch after the other.
List plain_list(int micro_batches, const std::vector<Segment>& segments) {
  List list;
  for (int program = 0; program < 2; ++program) {
    for (int m = 0; m < micro_batches; ++m) {
      for (const Segment segment : segments) list.emplace_back(Action{segment, program, m});
    }
  }
  return list;
}

std::vector<Segment> random_segments() {
  if (*rc::gen::arbitrary<bool>()) return {Segment::forward, Segment::backward};
  return {Segment::forward, Segment::input_gradients, Segment::weight_gradients};
}

RC_GTEST_PROP(Hold, NothingThatIsInUseOverlapsInAnyList, ()) {
  const TwoChunks rank;
  const int micro_batches = *rc::gen::inRange(1, 6);
  const List list = RandomList(rank, micro_batches, random_segments()).make();
  const MemoryPlan plan = plan_memory(rank.programs, list, host_target(1));
  Recount(rank, plan, list).check();
  RC_ASSERT(testing::MemoryReplay(rank.programs, plan).run(list).empty());
}

RC_GTEST_PROP(Hold, AnyListGivesTheBitsOfOneMicroBatchAfterTheOther, ()) {
  const TwoChunks rank;
  const int micro_batches = *rc::gen::inRange(1, 5);
  const std::vector<Segment> segments = random_segments();
  const List list = RandomList(rank, micro_batches, segments).make();
  const List plain = plain_list(micro_batches, segments);
  MessageRun run(rank, list);
  const MessageRun::Results expected = MessageRun(rank, plain).run();
  RC_ASSERT(run.run() == expected);
  RC_ASSERT(run.run() == expected);  // a step leaves nothing behind
}

}  // namespace
}  // namespace tessera
