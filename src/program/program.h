#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/words.h"
#include "program/operation.h"
#include "program/value.h"

namespace tessera {

// A program: class Program. The types before it describe its values and nodes.

/// The source of a value's memory.
enum class ValueKind {
  input,          ///< provided by the caller for each micro-batch
  parameter,      ///< a weight
  main_gradient,  ///< a weight's gradient, summed over the micro-batches of a step
  state,          ///< kept between runs and changed by them (key-value caches)
  computed,       ///< made by a node
};

/// The part of a model that a node belongs to. A block's nodes are recomputed and accounted
/// together.
enum class Block {
  other,
  embedding,
  norm,
  attention,
  feed_forward,
  router,
  experts,
  head,
  loss,
  optimizer
};
template <>
inline constexpr std::array<std::string_view, 10> kWordsOf<Block>{
    "other",  "embedding", "norm", "attention", "feed_forward",
    "router", "experts",   "head", "loss",      "optimizer"};

/// The pass that a node runs in. `recompute` nodes are among the backward ones; `update` nodes are
/// in programs of their own.
enum class Phase { forward, recompute, backward, update };
template <>
inline constexpr std::array<std::string_view, 4> kWordsOf<Phase>{"forward", "recompute", "backward",
                                                                 "update"};

/// Whether a value stays in memory for the backward pass although the nodes around it are
/// recomputed there. A value marked `block` stays if its block is recomputed, but not if its whole
/// layer is. A value marked `layer` always stays.
enum class Keep { no, block, layer };

/// The memory of a view: a part of the memory of `base`, which is not a view itself.
struct ViewOf {
  Value base;
  int64_t byte_offset = 0;
  /// The last value between the base and this view that an elided conversion made (see View); null
  /// if there is none. With more ranks on the conversion's axes, that value would have its own
  /// memory.
  Value converted;
  bool operator==(const ViewOf&) const = default;
};

/// Marks a value whose number of rows is known only at run time, when an output of a node holds
/// that number. The value's first dim is an upper bound. The rows beyond the number are neither
/// written nor read. Plans give such values a region of their own (see RunTimeRows).
struct Rows {
  int64_t expected = 0;  ///< the number of rows when the load is even
  std::string key;       ///< the configuration key that sets the upper bound
};

/// The facts that a program holds about one value.
struct ValueInfo {
  std::string name;
  Spec spec;
  ValueKind kind = ValueKind::computed;
  Keep keep = Keep::no;
  bool differentiable = false;  ///< true if gradients reach parameters or inputs through it
  std::optional<ViewOf> view;
  std::optional<Rows> rows;
  /// True if the number of rows, dim 0, is known only at run time, even on a mesh of one rank.
  bool has_run_time_rows = false;
  Value replaced_by;  ///< the value that its memory holds now, or null (see Builder::replace())
};

/// One use of an operation in a program.
struct Node {
  std::shared_ptr<const Operation> operation;
  std::vector<Value> inputs;
  std::vector<Value> outputs;
  Block block = Block::other;
  int layer = -1;  ///< -1 outside the layers
  Phase phase = Phase::forward;
};

/// A piece of a rank's work, such as a micro-batch or the update of a step: operations over named
/// values, in the order in which they run. The forward pass comes first. Everything else (executor,
/// memory plan, explain, tracer) reads this list.
class Program {
 public:
  explicit Program(Mesh mesh = {}, int rank = 0) : mesh_(std::move(mesh)), rank_(rank) {}

  const Mesh& mesh() const { return mesh_; }
  int rank() const { return rank_; }

  /// Returns the nodes in the order in which they run.
  const std::vector<Node>& nodes() const { return nodes_; }
  /// Returns the values by id.
  const std::vector<ValueInfo>& values() const { return values_; }
  /// Returns the facts about a value. Throws InternalError if the program has no value with its id.
  const ValueInfo& info(Value value) const;
  const Spec& spec(Value value) const { return info(value).spec; }

  /// Returns the number of nodes before the first node of another phase.
  int forward_size() const;

  /// Returns the values that the caller reads after the run.
  const std::vector<Value>& outputs() const { return outputs_; }
  /// Returns the name of a node in messages: that of its first output, or of its first input if it
  /// has no output.
  const std::string& name_of(const Node& node) const;
  /// Returns whether a value is one of outputs().
  bool is_output(Value value) const;

  /// Returns the value that owns the memory of a value: its base if it is a view, otherwise itself.
  Value base(Value value) const;

  /// Returns the main gradient of a parameter, or of a view of one; null if there is none. Views of
  /// the same memory under different types share it.
  Value main_gradient(Value parameter) const;
  /// Returns the value of that name. Throws InternalError if there is none.
  Value find(std::string_view name) const;

  /// Puts the nodes into another order, in which they run from now on. `order` has their indices.
  /// Throws InternalError unless it has each of them once, and each value is made before it is
  /// used.
  void reorder(std::span<const int> order);

  /// Returns the specs of these values, in the same order.
  std::vector<Spec> specs(std::span<const Value> values) const;

 private:
  friend class Builder;
  Mesh mesh_;
  int rank_ = 0;
  std::vector<Node> nodes_;
  std::vector<ValueInfo> values_;
  std::vector<Value> outputs_;
  std::map<int, Value> main_gradients_;  // by the parameter's id
  int exchange_count_ = 0;               // the number of calls of Builder::new_exchange()
};

/// Returns the cost of one run of a program's node. A value whose number of rows is known only at
/// run time counts with the rows of an even load (see Rows).
Cost node_cost(const Program& program, const Node& node);

/// Returns the specs of values, with as many rows as there are when the load is even (see Rows).
std::vector<Spec> expected_specs(const Program& program, std::span<const Value> values);

}  // namespace tessera
