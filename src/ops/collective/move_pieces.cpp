#include "ops/collective/move_pieces.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "comm/call_list.h"
#include "comm/communicator.h"
#include "ops/support.h"

namespace tessera {
namespace {

/// Input: this rank's piece. Output: its new piece, or an input that is updated, if `into`.
class MovePieces final : public Operation {
 public:
  MovePieces(const Program& program, std::string name, const FlatPieces& from, const FlatPieces& to,
             bool into)
      : message_name_(std::move(name)), to_(to), into_(into) {
    const Mesh& mesh = program.mesh();
    TESSERA_CHECK(from.axes == to.axes && from.elements() == to.elements(),
                  "pieces of {} and {} elements", from.elements(), to.elements());
    for (const Axis axis : from.axes) {
      if (mesh.size(axis) > 1) axes_.push_back(axis);
    }
    own_ = from.run_of(mesh, program.rank());
    new_ = to.run_of(mesh, program.rank());
    const std::vector<int> group = mesh.group(program.rank(), axes_);
    for (size_t position = 0; position < group.size(); ++position) {
      const ElementRun sent = intersection(own_, to.run_of(mesh, group[position]));
      const ElementRun received = intersection(from.run_of(mesh, group[position]), new_);
      if (group[position] == program.rank()) {
        kept_ = sent;
        continue;
      }
      if (sent.length > 0) sends_.push_back({static_cast<int>(position), sent});
      if (received.length > 0) receives_.push_back({static_cast<int>(position), received});
    }
  }

  std::string_view name() const override { return "move_pieces"; }
  Lane lane() const override { return Lane::reductions; }
  std::vector<std::vector<Axis>> group_axes() const override { return {axes_}; }
  std::string labels(std::span<const Spec>) const override {
    return into_ ? "p! -> += ?q" : "p! -> q";
  }
  std::vector<int> updated_inputs() const override {
    return into_ ? std::vector{1} : std::vector<int>{};
  }
  std::optional<std::vector<Distribution>> distributions(
      const Mesh&, std::span<const TypedOperand> inputs) const override {
    if (into_) return std::vector<Distribution>{};
    return std::vector{to_.distribution(inputs[0].spec.distribution)};
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs[0].shape == Shape{own_.length}, "{}; expected {} elements",
                   inputs[0].shape.text(), own_.length);
    const Spec moved{{new_.length}, inputs[0].dtype, {}};
    if (!into_) return {moved};
    TESSERA_EXPECT(*this, is_like(inputs[1], moved), "{}; expected {}", text_of(inputs[1]),
                   text_of(moved));
    return {};
  }
  Cost cost(std::span<const Spec> inputs, std::span<const Spec>) const override {
    int64_t elements = 0;
    for (const Part& part : sends_) elements += part.run.length;
    const int64_t element_bytes = dtype_size(inputs[0].dtype);
    return {.bytes = static_cast<double>((own_.length + new_.length) * element_bytes),
            .wire = {{axes_, static_cast<double>(elements * element_bytes)}}};
  }
  void run(const Execution& execution) const override {
    const Tensor& from = execution.inputs[0];
    const Tensor& to = into_ ? execution.inputs[1] : execution.outputs[0];
    if (kept_.length > 0) {
      copy(execution, from.view(kept_.begin - own_.begin, {kept_.length}),
           to.view(kept_.begin - new_.begin, {kept_.length}));
    }
    if (axes_.empty()) return;
    execution.group().exchange(message_name_, messages(sends_, from, own_.begin),
                               messages(receives_, to, new_.begin), execution.call());
  }
  void list_calls(const CallListing& listing) const override {
    if (axes_.empty()) return;
    CallList& group = listing.group();
    const DType dtype = listing.inputs[0].dtype;
    for (const Part& part : sends_) group.send(message_name_, part.peer, dtype, {part.run.length});
    for (const Part& part : receives_) {
      group.receive(message_name_, part.peer, dtype, {part.run.length});
    }
  }

 private:
  /// A run of the whole memory that travels to or from a rank.
  struct Part {
    int peer = 0;
    ElementRun run;
  };
  static std::vector<Message> messages(std::span<const Part> parts, const Tensor& piece,
                                       int64_t begin) {
    std::vector<Message> result;
    for (const Part& part : parts) {
      result.push_back({part.peer, piece.view(part.run.begin - begin, {part.run.length})});
    }
    return result;
  }

  std::string message_name_;
  FlatPieces to_;
  bool into_;
  std::vector<Axis> axes_;
  ElementRun own_, new_, kept_;
  std::vector<Part> sends_, receives_;
};

}  // namespace

Value move_pieces(Builder& builder, const std::string& name, Value piece, const FlatPieces& from,
                  const FlatPieces& to) {
  return builder.apply_single(
      std::make_shared<MovePieces>(builder.program(), name, from, to, /*into=*/false), {piece});
}

void move_pieces_into(Builder& builder, const std::string& name, Value piece,
                      const FlatPieces& from, Value target, const FlatPieces& to) {
  builder.apply(std::make_shared<MovePieces>(builder.program(), name, from, to, /*into=*/true),
                {piece, target});
}

}  // namespace tessera
