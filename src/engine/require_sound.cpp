// Follows the nodes in their order. A sum over ranks is taken in the memory of its addends, by a
// node that updates them. A view of this memory, which replaces the addends (Builder::replace()),
// then has the type of the sum. So the node makes this view, and the addends are gone.

#include "engine/require_sound.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"

namespace tessera {
namespace {

size_t index_of(Value value) { return static_cast<size_t>(value.id); }

/// Returns whether the ranks of an axis have addends of `replacement` in `value`.
bool is_summed(const Mesh& mesh, const Distribution& value, const Distribution& replacement) {
  if (value.view() != replacement.view()) return false;
  return std::ranges::any_of(mesh.axes_of(value.view()), [&](Axis axis) {
    return mesh.size(axis) > 1 && value.on(axis) == partial() && replacement.on(axis) != partial();
  });
}

class ProgramCheck {
 public:
  explicit ProgramCheck(const Program& program)
      : program_(program),
        is_made_(program.values().size(), false),
        is_read_(program.values().size(), false),
        viewed_(program.values().size()),
        addends_of_(program.values().size()) {
    for (size_t id = 0; id < program.values().size(); ++id) {
      const Value value{static_cast<int>(id)};
      is_made_[id] = program.info(value).kind != ValueKind::computed;
    }
    for (const Node& node : program.nodes()) {
      if (node.outputs.empty() || !program.info(node.outputs[0]).view) continue;
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        const auto view = node.operation->view(static_cast<int>(i));
        TESSERA_CHECK(view, "{} has a view and a value", node.operation->name());
        note_view(node.inputs[static_cast<size_t>(view->input)], node.outputs[i]);
      }
    }
    for (Value output : program.outputs()) {
      for (; output; output = viewed_[index_of(output)]) is_read_[index_of(output)] = true;
    }
  }

  void check(const Node& node) {
    for (const Value input : node.inputs) check_read(node, input);
    check_repetition(node);
    if (node.phase == Phase::update) check_update(node);
    for (const int updated : node.operation->updated_inputs()) {
      if (node.operation->lane() != Lane::compute) {
        take_sum_of(node.inputs[static_cast<size_t>(updated)]);
      }
    }
    for (const Value output : node.outputs) is_made_[index_of(output)] = true;
  }

  void check_gathers() const {
    TESSERA_CHECK(pieces_alone_.empty(),
                  "the update changes a piece of '{}', '{}', and no node after it gathers it",
                  name({pieces_alone_.begin()->first}), name(pieces_alone_.begin()->second));
  }

  /// Other programs may use the sums of kept values.
  void check_use_of_sums() const {
    for (size_t id = 0; id < addends_of_.size(); ++id) {
      if (!addends_of_[id] || is_read_[id]) continue;
      const Value sum{static_cast<int>(id)};
      const ValueInfo& base = program_.info(program_.base(sum));
      TESSERA_CHECK(base.kind != ValueKind::computed, "no node uses the sum of '{}' over ranks",
                    name(addends_of_[id]));
    }
  }

 private:
  const std::string& name(Value value) const { return program_.info(value).name; }
  std::string reader(const Node& node) const {
    return fmt::format("{} in the {} pass", node.operation->name(), word(node.phase));
  }

  /// Notes a view of a value, and whether it is the sum of the addends that this value has.
  void note_view(Value value, Value view) {
    const ValueInfo& info = program_.info(value);
    const Distribution& distribution = program_.spec(view).distribution;
    const bool is_sum = info.replaced_by == view &&
                        is_summed(program_.mesh(), info.spec.distribution, distribution);
    (is_sum ? addends_of_ : viewed_)[index_of(view)] = value;
    is_made_[index_of(view)] = !is_sum;
  }

  void check_read(const Node& node, Value value) {
    const Value base = program_.base(value);
    TESSERA_CHECK(is_made_[index_of(base)], "{} reads '{}', but no node before it computes '{}'",
                  reader(node), name(value), name(base));
    for (Value part = value; part; part = viewed_[index_of(part)]) {
      is_read_[index_of(part)] = true;
      TESSERA_CHECK(is_made_[index_of(part)],
                    "{} reads '{}', but no node before it sums '{}' over ranks", reader(node),
                    name(value), name(addends_of_[index_of(part)]));
    }
    const Value replacement = program_.info(value).replaced_by;
    TESSERA_CHECK(
        !replacement || !addends_of_[index_of(replacement)] || !is_made_[index_of(replacement)],
        "{} reads '{}', whose memory holds a sum over ranks by then: '{}'", reader(node),
        name(value), name(replacement));
  }

  void check_repetition(const Node& node) {
    const std::vector<int> updated = node.operation->updated_inputs();
    if (updated.empty()) return;
    std::vector<int> inputs;
    for (const Value input : node.inputs) inputs.push_back(input.id);
    const bool is_new = updates_.emplace(node.operation.get(), std::move(inputs)).second;
    TESSERA_CHECK(is_new, "{} changes '{}' twice with the same operands", reader(node),
                  name(node.inputs[static_cast<size_t>(updated.front())]));
  }

  void check_update(const Node& node) {
    for (const int input : node.operation->updated_inputs()) {
      const Value value = node.inputs[static_cast<size_t>(input)];
      const ValueKind kind = program_.info(program_.base(value)).kind;
      if (kind != ValueKind::parameter && kind != ValueKind::state) continue;
      if (node.operation->lane() == Lane::compute) check_change(node, value);
      if (kind == ValueKind::parameter) note_piece(node, value);
    }
  }

  void check_change(const Node& node, Value value) {
    const ValueInfo& info = program_.info(value);
    const int64_t begin = info.view ? info.view->byte_offset : 0;
    const int64_t end = begin + info.spec.bytes();
    if (begin == end) return;
    std::map<int64_t, int64_t>& changed = changed_[program_.base(value).id];
    auto next = changed.lower_bound(end);
    const bool overlaps = next != changed.begin() && std::prev(next)->second > begin;
    TESSERA_CHECK(!overlaps, "{} changes '{}', which the update has changed before", reader(node),
                  name(value));
    changed.emplace(begin, end);
  }

  /// Notes that a node changes a weight. If ranks have changed pieces, and each has more of the
  /// weight than its piece, then a node of the network is to change all that they have.
  void note_piece(const Node& node, Value value) {
    const Value weight = program_.base(value);
    const Distribution& piece = program_.spec(value).distribution;
    const Distribution& whole = program_.spec(weight).distribution;
    const bool is_piece =
        std::ranges::any_of(program_.mesh().axes_of(whole.view()), [&](Axis axis) {
          return program_.mesh().size(axis) > 1 && piece.on(axis).split() &&
                 !whole.on(axis).split();
        });
    if (is_piece) {
      pieces_alone_.insert_or_assign(weight.id, value);
    } else if (node.operation->lane() != Lane::compute) {
      pieces_alone_.erase(weight.id);
    }
  }

  void take_sum_of(Value value) {
    const Value sum = program_.info(value).replaced_by;
    if (sum && addends_of_[index_of(sum)] == value) is_made_[index_of(sum)] = true;
  }

  const Program& program_;
  std::vector<bool> is_made_;  // by value
  std::vector<bool> is_read_;  // by value
  std::vector<Value> viewed_;  // by value: what it is a view of, or null
  std::vector<Value>
      addends_of_;  // by value: its addends, of which it is the sum over ranks, or null
  std::set<std::pair<const Operation*, std::vector<int>>> updates_;  // operations and their inputs
  std::map<int, Value> pieces_alone_;  // by the id of a weight: the piece that no node gathers
  /// By the id of a kept value: the begins and ends of the bytes that the update has changed.
  std::map<int, std::map<int64_t, int64_t>> changed_;
};

}  // namespace

void require_sound(const Program& program, std::span<const std::vector<int>> segments) {
  ProgramCheck check(program);
  for (const std::vector<int>& nodes : segments) {
    for (const int node : nodes) check.check(program.nodes()[static_cast<size_t>(node)]);
  }
  check.check_use_of_sums();
  check.check_gathers();
}

}  // namespace tessera
