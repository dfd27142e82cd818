#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "program/program.h"

namespace tessera {

/// Appends nodes and values to a Program (program/program.h). Each operation has a free function
/// (`linear(builder, x, w)`) that ends in apply(). One thread uses a Builder.
class Builder {
 public:
  explicit Builder(Program& program) : program_(program) {}

  const Program& program() const { return program_; }
  const Spec& spec(Value value) const { return program_.spec(value); }

  /// Declares a value that the caller provides for each run. The name is taken as it is: unlike
  /// name(), input(), parameter() and state() do not put the current scope before it.
  Value input(std::string name, Spec spec) {
    return add_value(std::move(name), std::move(spec), ValueKind::input);
  }
  /// Declares a weight; its name is taken as it is.
  Value parameter(std::string name, Spec spec) {
    return add_value(std::move(name), std::move(spec), ValueKind::parameter);
  }
  /// Grows a declared flat value by `elements` while its parts are being declared.
  void grow(Value value, int64_t elements);
  /// Declares a value that is kept between runs and changed by them; its name is taken as it is.
  Value state(std::string name, Spec spec) {
    return add_value(std::move(name), std::move(spec), ValueKind::state);
  }

  /// Appends a node and returns its outputs. Their shapes come from the operation's infer(), and
  /// their distributions from its labels and rules. Throws DistributionError if these refuse the
  /// inputs' distributions, or if something is added into a value of another distribution.
  std::vector<Value> apply(std::shared_ptr<const Operation> operation, std::vector<Value> inputs);
  /// Appends a node and returns its output. Throws as apply() does, and InternalError unless there
  /// is exactly one output.
  Value apply_single(std::shared_ptr<const Operation> operation, std::vector<Value> inputs);

  /// Returns the value into which gradients of `value` are added, in f32 (f64 for f64); declares it
  /// if it is new. A view of a parameter gets the same part of the parameter's main gradient. The
  /// result of a conversion on axes of one rank gets the memory of the main gradient of the
  /// conversion's input, under another type. Returns null for any other value, and if the
  /// distribution of the main gradient is not the dual of the value's.
  Value main_gradient(Value value);
  /// Returns what main_gradient() does, or a main gradient that is partial on axes where gradients
  /// of `value` are not. A main gradient is partial where any use of the parameter so far is
  /// replicated. The caller must convert a gradient that is invariant there to partial, so that one
  /// rank alone adds it.
  Value main_gradient_of_any_type(Value value);

  /// Declares the main gradient of a parameter, with the shape and the distribution that it has in
  /// the program which computes it. Both may be of a piece of it. If the parameter has a main
  /// gradient already, returns that one.
  Value declare_main_gradient(Value parameter, const Shape& shape,
                              const Distribution& distribution);

  /// Lets gradients of `root` and of its views be added into a value of this run alone, the frame
  /// gradient: main_gradient() returns it or a part of it. `root` is a weight as a gather gives it,
  /// or a stored weight under another type (View::elided). The first request for it calls
  /// `zeros_of` with its spec, which appends the node that makes it.
  void sum_in_frame(Value root, std::function<Value(const Spec& spec)> zeros_of) {
    frame_roots_.emplace(root.id, std::move(zeros_of));
  }
  /// Returns the frame gradient of the value that was given to sum_in_frame(); null if there is
  /// none, or if no gradient has asked for it.
  Value frame_gradient(Value root) const;

  /// Marks a value that the caller reads after the run.
  void output(Value value);
  /// Sets whether a value stays in memory for the backward pass (see Keep).
  void keep(Value value, Keep keep) { info(value).keep = keep; }
  /// Marks a value whose number of rows is known only at run time (see Rows).
  void set_rows(Value value, Rows rows);
  /// Marks a value whose number of rows is known only at run time, but whose memory is planned for
  /// the largest possible number (ValueInfo::has_run_time_rows without Rows). Outputs that have the
  /// same labels in dim 0 as a marked input are marked, too.
  void mark_run_time_rows(Value value) { info(value).has_run_time_rows = true; }
  /// Marks that the memory of a value now holds `replacement`, a view of it. Later nodes cannot
  /// read the value, nor any value declared so far that overlaps this memory, except `replacement`.
  void replace(Value value, Value replacement);
  /// Gives a computed value its own name for tables and errors, below the current scope.
  void name(Value value, std::string_view name) { name_as(value, qualified(name)); }
  /// Gives a value a name that is taken as it is.
  void name_as(Value value, std::string name) { info(value).name = std::move(name); }

  /// Rebuilds the backward pass from the same nodes with other inputs. `inputs_of` returns the
  /// inputs of a node, and may append nodes that run before it. Throws DistributionError if an
  /// input has another spec than the input that it replaces.
  void rewrite_backward(const std::function<std::vector<Value>(const Node&)>& inputs_of);

  /// A guard: during its lifetime, new nodes belong to a block and a layer, and the names of their
  /// values begin with `path`.
  class Scope {
   public:
    Scope(Builder& builder, std::string_view path, Block block, int layer);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Builder& builder_;
    std::string path_;
    Block block_;
    int layer_;
  };
  /// Opens a scope of this block within the current one; the layer is inherited.
  [[nodiscard]] Scope scope(std::string_view path, Block block) {
    return Scope(*this, path, block, layer_);
  }
  /// Opens a scope of this layer within the current one; the block is inherited.
  [[nodiscard]] Scope layer_scope(std::string_view path, int layer) {
    return Scope(*this, path, block_, layer);
  }
  /// Gives the following nodes the block and layer of `node`, and this phase.
  void enter_block_of(const Node& node, Phase phase);

  /// Returns a number that identifies the rows of one exchange of the program (see
  /// Pieces::identity). It is the same on all ranks, because all write the same program.
  int new_exchange() { return program_.exchange_count_++; }

  /// Returns the layer of the current scope; -1 outside the layers.
  int layer() const { return layer_; }
  /// Returns the path of the current scope joined with a name: "layers.3.attention.q".
  std::string qualified(std::string_view name) const;

 private:
  ValueInfo& info(Value value);
  /// Throws DistributionError if the memory of a value holds another one now (see replace()).
  void refuse_replaced(std::string_view reader, Value value) const;
  void refuse_other_spec(const Node& node, Value expected, Value input) const;
  Value add_value(std::string name, Spec spec, ValueKind kind);
  /// Returns the distributions of a node's outputs.
  std::vector<Distribution> distributions_of(const Operation& operation,
                                             std::span<const Value> inputs,
                                             std::span<const Spec> specs);
  const Labels& labels_of(const Operation& operation, std::span<const Spec> inputs);
  /// Returns whether an output has the rows of an input that is marked (see mark_run_time_rows()).
  bool has_rows_of_inputs(const Operation& operation, std::span<const Value> inputs,
                          std::span<const Spec> specs, size_t output);
  /// Notes the base of an output that is a view of an input.
  void note_view(const Operation& operation, int output, std::span<const Value> inputs,
                 Value value);

  class ParameterUses;
  ParameterUses& uses();
  /// Returns whether gradients of a value's views are added into a value of its own: it is a
  /// parameter, or sums in the frame.
  bool has_own_gradient(Value value) const;
  /// Returns the gradient of such a value. If it is new, declares or makes it with this
  /// distribution.
  Value gradient_of_root(Value root, const Distribution& distribution);

  Program& program_;
  std::shared_ptr<ParameterUses> uses_;  // null before it is needed, and after nodes were changed
  std::map<int, std::function<Value(const Spec&)>> frame_roots_;  // by id (see sum_in_frame())
  std::map<std::string, Labels> labels_;                          // by their text
  std::string path_;
  Block block_ = Block::other;
  int layer_ = -1;
  Phase phase_ = Phase::forward;
};

}  // namespace tessera
