#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "program/program.h"

namespace tessera {

/// Writes a Program. Operations have free functions of their own (`linear(builder, x, w)`) that end
/// in apply().
class Builder {
 public:
  explicit Builder(Program& program) : program_(program) {}

  /// The program as written so far.
  const Program& program() const { return program_; }
  const Spec& spec(Value value) const { return program_.spec(value); }

  /// Declares a value that is given anew for each run. Its name is taken as it is: unlike name(),
  /// these three do not put the current scope before it.
  Value input(std::string name, Spec spec);
  /// Declares a weight; its name is taken as it is.
  Value parameter(std::string name, Spec spec);
  /// Makes a declared flat value larger, while what lies in it is being declared.
  void grow(Value value, int64_t elements);
  /// Declares a value that runs keep and change; its name is taken as it is.
  Value state(std::string name, Spec spec);

  /// Appends a node and gives its outputs; their specs come from the operation's infer().
  std::vector<Value> apply(std::shared_ptr<const Operation> operation, std::vector<Value> inputs);
  /// The same for an operation with one output.
  Value apply_single(std::shared_ptr<const Operation> operation, std::vector<Value> inputs);

  /// The value into which gradients of `value` are added, in f32 (f64 for f64). For a parameter it
  /// is made at the first call; for a view of one it is the same part of that one's. Null for any
  /// other value.
  Value main_gradient(Value value);

  /// Marks a value as read by the caller after the run.
  void output(Value value);
  /// Marks how far a value stays in memory for the backward pass (see Keep).
  void keep(Value value, Keep keep);
  /// Marks a value whose rows are brought at run time (see Rows).
  void rows(Value value, Rows rows);
  /// Gives a computed value a name of its own in tables and errors, below the current scope.
  void name(Value value, std::string_view name);

  /// Appends a node whose outputs exist already: for passes that rewrite a list.
  void append(Node node);
  /// Takes the backward pass out of the program, for passes that rewrite it.
  std::vector<Node> take_backward();

  /// While it lives, nodes belong to this block and layer, and names of values start with `path`.
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
  /// Opens a scope within the current one; `layer` is inherited when it is not given.
  [[nodiscard]] Scope scope(std::string_view path, Block block);
  /// Opens a scope of this layer within the current one; the block is inherited.
  [[nodiscard]] Scope layer_scope(std::string_view path, int layer);
  /// Puts the following nodes where `node` stands: its block and layer, in this phase.
  void follow(const Node& node, Phase phase);

  /// The path of the current scope joined with a name: "layers.3.attention.q".
  std::string qualified(std::string_view name) const;

 private:
  Value add_value(std::string name, Spec spec, ValueKind kind);
  void note_view(const Operation& operation, int output, std::span<const Value> inputs,
                 Value value);
  Value view_of_main_gradient(Value value);

  Program& program_;
  std::string path_;
  Block block_ = Block::other;
  int layer_ = -1;
  Phase phase_ = Phase::forward;
};

}  // namespace tessera
