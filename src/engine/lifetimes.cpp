// Finds when a program's values are in memory, in two passes over the nodes of its segments. The
// first finds the moments of the first and the last use of each value. The second gives each value
// that a node makes a block of memory: a new one, or the block of an input that is not used later,
// if the operation can compute in place.

#include "engine/lifetimes.h"

#include <algorithm>

#include "base/error.h"
#include "engine/require_sound.h"
#include "tensor/alignment.h"

namespace tessera {
namespace {

size_t index(Value value) { return static_cast<size_t>(value.id); }

/// The first and the last moment at which a value's memory is touched.
struct Use {
  /// Work that goes on beside later steps.
  struct Span {
    Moment begin;
    Moment end;
  };

  bool used = false;
  Moment first;
  Moment last;
  std::vector<Span> beside;

  void note(Moment moment) {
    if (!used) first = moment;
    used = true;
    last = std::max(last, moment);
  }
};

/// Fills in the blocks of Lifetimes from its segments, nodes and joins.
class LifetimeFinder {
 public:
  LifetimeFinder(const Program& program, Lifetimes& lifetimes)
      : program_(program), lifetimes_(lifetimes), uses_(program.values().size()) {}

  void run() {
    find_uses();
    lifetimes_.block_of.assign(program_.values().size(), -1);
    lifetimes_.ranges.resize(program_.values().size());
    lifetimes_.saved.assign(program_.values().size(), false);
    for (size_t id = 0; id < program_.values().size(); ++id) {
      if (program_.values()[id].kind == ValueKind::input) give_block(Value{static_cast<int>(id)});
    }
    for (size_t segment = 0; segment < lifetimes_.nodes.size(); ++segment) {
      for (const int node : lifetimes_.nodes[segment]) {
        give_output_blocks(program_.nodes()[static_cast<size_t>(node)]);
      }
    }
    for (size_t id = 0; id < program_.values().size(); ++id) {
      const Value base = program_.base(Value{static_cast<int>(id)});
      lifetimes_.block_of[id] = lifetimes_.block_of[index(base)];
      if (lifetimes_.block_of[id] < 0) continue;
      lifetimes_.ranges[id] = {uses_[index(base)].first.segment, uses_[index(base)].last.segment};
    }
  }

 private:
  void find_uses() {
    for (size_t segment = 0; segment < lifetimes_.nodes.size(); ++segment) {
      const std::vector<int>& nodes = lifetimes_.nodes[segment];
      for (size_t step = 0; step < nodes.size(); ++step) {
        const Moment begin{static_cast<int>(segment), static_cast<int>(step)};
        const Moment end{begin.segment, lifetimes_.joins[segment].busy_until[step]};
        const Node& node = program_.nodes()[static_cast<size_t>(nodes[step])];
        for (const auto* values : {&node.outputs, &node.inputs}) {
          for (const Value value : *values) {
            use(value).note(begin);
            use(value).note(end);
            if (end > begin) use(value).beside.push_back({begin, end});
          }
        }
      }
    }
    // The caller reads an output after the segment that makes it.
    for (const Value output : program_.outputs()) {
      const int segment = use(output).first.segment;
      use(output).note({segment, step_count(segment) - 1});
    }
    // The caller writes an input before the segment begins.
    for (size_t id = 0; id < uses_.size(); ++id) {
      if (program_.values()[id].kind != ValueKind::input) continue;
      uses_[id].first.step = 0;
      uses_[id].used = true;
    }
  }

  int step_count(int segment) const {
    return static_cast<int>(lifetimes_.nodes[static_cast<size_t>(segment)].size());
  }

  Use& use(Value value) { return uses_[index(program_.base(value))]; }

  /// Gives a value a new block.
  void give_block(Value value) {
    const ValueInfo& info = program_.info(value);
    const Use& use = uses_[index(value)];
    FrameBlock block{
        .bytes = aligned_bytes(info.spec.bytes()), .first = use.first, .last = use.last};
    if (info.rows) {
      const int64_t row = info.spec.bytes() / std::max<int64_t>(info.spec.shape[0], 1);
      block.has_run_time_rows = true;
      block.expected_bytes = aligned_bytes(row * info.rows->expected);
    }
    lifetimes_.block_of[index(value)] = static_cast<int>(lifetimes_.blocks.size());
    lifetimes_.blocks.push_back(block);
  }

  void give_output_blocks(const Node& node) {
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const Value output = node.outputs[i];
      const Value input = reused_input(node, static_cast<int>(i));
      if (input) {
        const int block = lifetimes_.block_of[index(input)];
        lifetimes_.block_of[index(output)] = block;
        FrameBlock& reused = lifetimes_.blocks[static_cast<size_t>(block)];
        reused.last = std::max(reused.last, uses_[index(output)].last);
      } else {
        give_block(output);
      }
      lifetimes_.saved[index(output)] =
          uses_[index(output)].last.segment > uses_[index(output)].first.segment;
    }
  }

  /// Returns the computed value whose memory an output reuses, or null. It is the base of the input
  /// that the operation names. The node must be the last to use that value, and use it once, uses
  /// of its views included. No earlier node may still be at work on it. The value must have the
  /// output's dtype and size, and neither it nor a view of it may be an output of the program.
  Value reused_input(const Node& node, int output) const {
    const int input_index = node.operation->in_place_input(output);
    if (input_index < 0) return {};
    const Value input = program_.base(node.inputs[static_cast<size_t>(input_index)]);
    const Value value = node.outputs[static_cast<size_t>(output)];
    const ValueInfo& reused_info = program_.info(input);
    const ValueInfo& output_info = program_.info(value);
    const auto shares_memory = [&](Value other) { return program_.base(other) == input; };
    const bool fits = reused_info.kind == ValueKind::computed &&
                      std::ranges::none_of(program_.outputs(), shares_memory) &&
                      reused_info.rows.has_value() == output_info.rows.has_value() &&
                      reused_info.spec.dtype == output_info.spec.dtype &&
                      reused_info.spec.bytes() == output_info.spec.bytes();
    const Moment now = uses_[index(value)].first;
    const bool ends_here = uses_[index(input)].last == now &&
                           std::ranges::none_of(uses_[index(input)].beside, [&](Use::Span span) {
                             return span.begin < now && span.end >= now;
                           });
    if (!fits || !ends_here || std::ranges::count_if(node.inputs, shares_memory) != 1) return {};
    // Another output of this node may reuse the memory already.
    const int block = lifetimes_.block_of[index(input)];
    for (const Value other : node.outputs) {
      if (other != value && lifetimes_.block_of[index(other)] == block) return {};
    }
    return input;
  }

  const Program& program_;
  Lifetimes& lifetimes_;
  std::vector<Use> uses_;  // by value; a view's uses count as its base's
};

}  // namespace

Lifetimes::Lifetimes(const Program& program, std::vector<Segment> segments)
    : order(std::move(segments)) {
  size_t node_count = 0;
  for (const Segment segment : order) {
    nodes.push_back(segment_nodes(program, segment));
    joins.push_back(find_joins(program, nodes.back()));
    node_count += nodes.back().size();
  }
  std::vector<int> all_nodes;
  for (const auto& list : nodes) all_nodes.insert(all_nodes.end(), list.begin(), list.end());
  std::ranges::sort(all_nodes);
  TESSERA_CHECK(all_nodes == segment_nodes(program, Segment::whole),
                "the actions run {} of a program's {} nodes", node_count,
                segment_nodes(program, Segment::whole).size());
  require_sound(program, nodes);
  LifetimeFinder(program, *this).run();
}

}  // namespace tessera
