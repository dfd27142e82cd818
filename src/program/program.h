#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "program/operation.h"
#include "program/value.h"

namespace tessera {

/// Where a value's memory comes from.
enum class ValueKind {
  input,          ///< given anew for each micro-batch
  parameter,      ///< a weight
  main_gradient,  ///< a weight's gradient, added into over the micro-batches of a step
  state,          ///< kept between runs and changed by them (key-value caches)
  computed,       ///< made by a node
};

/// The part of a model that a node belongs to: what is recomputed together and accounted together.
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
/// "attention", "feed_forward": the name in tables and traces.
std::string_view block_name(Block block);

/// The pass that a node runs in: `recompute` nodes stand among the backward ones, `update` nodes in
/// programs of their own.
enum class Phase { forward, recompute, backward, update };
/// "forward", "recompute", "backward", "update".
std::string_view phase_name(Phase phase);

/// How far rematerialization may go: a value marked `block` stays when norms, attention or experts
/// are recomputed but goes when the whole layer is; one marked `layer` always stays.
enum class Keep { no, block, layer };

/// The memory that a value is a part of: another value's, which is no view itself.
struct ViewOf {
  Value base;
  int64_t byte_offset = 0;
};

/// Of a value whose rows are brought at run time: its first dim is a bound, a node's output is the
/// number. Plans give such values a region of their own (see RunTimeRows).
struct Rows {
  int64_t expected = 0;  ///< of the bound, where the load is even
  std::string key;       ///< of the configuration, that sets the bound
};

/// What a program knows of one value.
struct ValueInfo {
  std::string name;
  Spec spec;
  ValueKind kind = ValueKind::computed;
  Keep keep = Keep::no;
  std::optional<ViewOf> view;
  std::optional<Rows> rows;
};

/// One operation at work in a program.
struct Node {
  std::shared_ptr<const Operation> operation;
  std::vector<Value> inputs;
  std::vector<Value> outputs;
  Block block = Block::other;
  int layer = -1;  ///< -1 outside the layers
  Phase phase = Phase::forward;
};

/// A rank's work for one micro-batch: operations over named values, in the order in which they run,
/// the forward pass first. Everything else (executor, memory plan, explain, tracer) reads this
/// list.
class Program {
 public:
  /// In the order in which they run.
  const std::vector<Node>& nodes() const { return nodes_; }
  /// By the value's id.
  const std::vector<ValueInfo>& values() const { return values_; }
  /// Throws InternalError for a value of no or another, larger program.
  const ValueInfo& info(Value value) const;
  const Spec& spec(Value value) const { return info(value).spec; }

  /// The number of nodes of the forward pass; the rest is the backward pass.
  int forward_size() const;

  /// Values that outlive the run: the caller reads them.
  const std::vector<Value>& outputs() const { return outputs_; }
  /// Whether it is one of outputs().
  bool is_output(Value value) const;

  /// The value whose memory a value lies in: itself, where it is no view.
  Value base(Value value) const;

  /// The main gradient of a parameter or of a view of one; null where nothing adds into one.
  Value main_gradient(Value parameter) const;
  /// The value of that name; throws InternalError when there is none.
  Value find(std::string_view name) const;

  /// Their specs, in the same order.
  std::vector<Spec> specs(std::span<const Value> values) const;

 private:
  friend class Builder;
  std::vector<Node> nodes_;
  std::vector<ValueInfo> values_;
  std::vector<Value> outputs_;
  std::map<int, Value> main_gradients_;  // by the parameter's id
};

}  // namespace tessera
