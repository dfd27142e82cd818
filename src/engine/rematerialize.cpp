// Recomputes dropped values in the backward pass: a value is *dropped* if it is not kept for that
// pass. The backward nodes are rebuilt in their order. Before the first backward node that
// reads a dropped value, the forward node that made the value is repeated. If that node reads
// dropped values, their nodes are repeated first.

#include "engine/rematerialize.h"

#include <algorithm>

#include "base/error.h"
#include "program/builder.h"

namespace tessera {
namespace {

/// The rule by which a node's results are recomputed: not at all, with the node's block, or with
/// its layer.
enum class Depth { none, block, layer };

Depth depth_of(const Node& node, const Recompute& recompute) {
  if (recompute.layer && node.layer >= 0) return Depth::layer;
  if (node.operation->cheap_to_repeat()) return Depth::block;
  switch (node.block) {
    case Block::norm:
      return recompute.norm ? Depth::block : Depth::none;
    case Block::attention:
      return recompute.attention ? Depth::block : Depth::none;
    case Block::feed_forward:
    case Block::router:
    case Block::experts:
      return recompute.experts ? Depth::block : Depth::none;
    default:
      return Depth::none;
  }
}

/// Replaces dropped values in the backward pass by recomputed copies.
class Rematerialization {
 public:
  Rematerialization(Builder& builder, const Recompute& recompute)
      : builder_(builder), forward_(builder.program().nodes()) {
    forward_.resize(static_cast<size_t>(builder.program().forward_size()));
    const size_t count = builder.program().values().size();
    producer_.assign(count, -1);
    copies_.assign(count, Value{});
    dropped_.assign(count, false);
    for (size_t i = 0; i < forward_.size(); ++i) {
      const Depth depth = depth_of(forward_[i], recompute);
      for (const Value output : forward_[i].outputs) {
        producer_[index(output)] = static_cast<int>(i);
        // A view is kept if its base is.
        const Value base = builder.program().base(output);
        dropped_[index(output)] =
            base == output ? depth != Depth::none && !stays(output, depth) : dropped_[index(base)];
      }
    }
  }

  void rewrite() {
    builder_.rewrite_backward([this](const Node& node) {
      std::vector<Value> inputs;
      for (const Value input : node.inputs) inputs.push_back(available(input));
      return inputs;
    });
  }

 private:
  static size_t index(Value value) { return static_cast<size_t>(value.id); }

  bool stays(Value value, Depth depth) const {
    if (builder_.program().is_output(value)) return true;
    const Keep keep = builder_.program().info(value).keep;
    return keep == Keep::layer || (keep == Keep::block && depth == Depth::block);
  }

  /// Returns the value itself if it is kept, otherwise its recomputed copy, built at first use.
  Value available(Value value) {
    if (index(value) >= dropped_.size() || !dropped_[index(value)]) return value;
    if (!copies_[index(value)]) {
      repeat(forward_[static_cast<size_t>(producer_[index(value)])]);
    }
    return copies_[index(value)];
  }

  /// Appends the recomputation of a forward node.
  void repeat(const Node& node) {
    std::vector<Value> inputs;
    std::vector<Value> kept_outputs;  // null where dropped
    for (const Value output : node.outputs) {
      kept_outputs.push_back(dropped_[index(output)] ? Value{} : output);
    }
    for (const Value input : node.operation->recompute_inputs(node, kept_outputs)) {
      inputs.push_back(input ? available(input) : Value{});
    }
    builder_.enter_block_of(node, Phase::recompute);
    const std::vector<Value> outputs =
        node.operation->recompute(builder_, node, inputs, kept_outputs);
    TESSERA_CHECK(outputs.size() == node.outputs.size(), "{} recomputed {} of {} outputs",
                  node.operation->name(), outputs.size(), node.outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      copies_[index(node.outputs[i])] = outputs[i];
      const std::optional<Rows> rows = builder_.program().info(node.outputs[i]).rows;
      if (rows && outputs[i]) builder_.set_rows(outputs[i], *rows);
      if (builder_.program().info(node.outputs[i]).has_run_time_rows && outputs[i]) {
        builder_.mark_run_time_rows(outputs[i]);
      }
    }
  }

  Builder& builder_;
  std::vector<Node> forward_;
  std::vector<int> producer_;  // by value: the forward node that makes it
  std::vector<Value> copies_;  // by value: its recomputed copy
  std::vector<bool> dropped_;  // by value: not kept for the backward pass
};

}  // namespace

Recompute recompute_of(std::span<const RecomputedBlock> blocks) {
  static_assert(kWordsOf<RecomputedBlock>.size() == 4, "each kind of block has a member below");
  const auto has = [&](RecomputedBlock block) { return std::ranges::count(blocks, block) > 0; };
  return {.norm = has(RecomputedBlock::norm),
          .attention = has(RecomputedBlock::attention),
          .experts = has(RecomputedBlock::experts),
          .layer = has(RecomputedBlock::layer)};
}

void rematerialize(Builder& builder, const Recompute& recompute) {
  Rematerialization(builder, recompute).rewrite();
}

}  // namespace tessera
