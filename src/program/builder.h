#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "program/parameter_uses.h"
#include "program/program.h"

namespace tessera {

/// Writes a Program. Each operation has a free function (`linear(builder, x, w)`) that ends in
/// apply().
class Builder {
 public:
  explicit Builder(Program& program) : program_(program), uses_(program) {}

  /// The program as written so far.
  const Program& program() const { return program_; }
  const Spec& spec(Value value) const { return program_.spec(value); }

  /// Declares a value that the caller provides anew for each run. The name is taken as it is:
  /// unlike name(), input(), parameter() and state() do not put the current scope before it.
  Value input(std::string name, Spec spec);
  /// Declares a weight; its name is taken as it is.
  Value parameter(std::string name, Spec spec);
  /// Adds `elements` to a declared flat value while its parts are being declared.
  void grow(Value value, int64_t elements);
  /// Declares a value that is kept between runs and changed by them; its name is taken as it is.
  Value state(std::string name, Spec spec);

  /// Appends a node and returns its outputs. Their shapes come from the operation's infer(), and
  /// how they lie over the ranks from its labels. Throws DistributionError if the labels refuse the
  /// inputs' distributions, or if an input that is added into does not lie as what is added.
  std::vector<Value> apply(std::shared_ptr<const Operation> operation, std::vector<Value> inputs);
  /// The same for an operation with one output.
  Value apply_single(std::shared_ptr<const Operation> operation, std::vector<Value> inputs);

  /// The value into which gradients of `value` are added, in f32 (f64 for f64). For a parameter it
  /// is declared at the first call. For a view of a parameter it is the same part of the
  /// parameter's main gradient, and for what a conversion on axes of one rank made of it the same
  /// memory under the type of the conversion's gradient. Null for any other value, and if the
  /// parameter's main gradient is partial where gradients of `value` are not.
  Value main_gradient(Value value);
  /// The same, whether or not it is partial on more axes. A main gradient is partial where any use
  /// of the parameter so far is replicated. What is not partial there is added by one rank alone
  /// (invariant -> partial).
  Value main_gradient_of_all(Value value);

  /// Declares the main gradient of a parameter of which another program has made it, and where it
  /// lies so.
  Value main_gradient(Value parameter, const Distribution& distribution);

  /// Marks a value that the caller reads after the run.
  void output(Value value);
  /// Marks whether a value stays in memory for the backward pass (see Keep).
  void keep(Value value, Keep keep);
  /// Marks a value whose number of rows is known only at run time (see Rows).
  void rows(Value value, Rows rows);
  /// The same of one that is as large as can be, as the rows of experts are on one rank. Values
  /// with the same rows follow from the labels.
  void run_time_rows(Value value);
  /// Marks that the memory of a value now holds `by`, a view of it. The value, and every other one
  /// that lies in this memory, cannot be read by later nodes: only `by` and what is made of it can.
  void replace(Value value, Value by);
  /// Gives a computed value its own name for tables and errors, below the current scope.
  void name(Value value, std::string_view name);
  /// The same with a name that is taken as it is.
  void name_as(Value value, std::string name);

  /// Writes the backward pass anew: the same nodes with other inputs. `inputs_of` gives the inputs
  /// of a node, and may append nodes that come before it. Throws DistributionError if an input is
  /// of another spec than the one in whose place it stands.
  void rewrite_backward(const std::function<std::vector<Value>(const Node&)>& inputs_of);

  /// Puts nodes into a block and a layer while it lives, and `path` before the names of values.
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
  [[nodiscard]] Scope scope(std::string_view path, Block block);
  /// Opens a scope of this layer within the current one; the block is inherited.
  [[nodiscard]] Scope layer_scope(std::string_view path, int layer);
  /// Gives the following nodes the block and layer of `node`, and this phase.
  void follow(const Node& node, Phase phase);

  /// A number that tells the rows of one exchange of the program from those of others (see
  /// Pieces::identity). The same on all ranks, which write the same program.
  int new_exchange() { return program_.exchanges_++; }

  /// The layer of the current scope; -1 outside the layers.
  int layer() const { return layer_; }
  /// The path of the current scope joined with a name: "layers.3.attention.q".
  std::string qualified(std::string_view name) const;

 private:
  ValueInfo& info(Value value);
  void refuse_replaced(std::string_view reader, Value value) const;
  void refuse_other_spec(const Node& node, Value expected, Value input) const;
  Value add_value(std::string name, Spec spec, ValueKind kind);
  /// The distributions of a node's outputs.
  std::vector<Distribution> distributions_of(const Operation& operation,
                                             std::span<const Value> inputs,
                                             std::span<const Spec> specs);
  const Labels& labels_of(const Operation& operation, std::span<const Spec> inputs);
  /// Whether an output has the rows of an input of which only a run knows how many there are.
  bool has_rows_of_inputs(const Operation& operation, std::span<const Value> inputs,
                          std::span<const Spec> specs, size_t output);
  void note_view(const Operation& operation, int output, std::span<const Value> inputs,
                 Value value);
  /// How the main gradient of a parameter lies: partial where `use` or another use of it or of its
  /// parts is replicated (on all axes, if there are uses in both views of the mesh), and otherwise
  /// as the dual of the parameter. Uses of what conversions made
  /// of it do not count, but the conversions do.
  Distribution main_gradient_type(Value parameter, const Spec& use);
  /// The place of a part of a parameter in the parameter's main gradient.
  Value part_of_main_gradient(const ValueInfo& part, Value whole);
  /// The main gradient, under the type that gradients of `value` have, of what an elided conversion
  /// made of a parameter, or of a part of that. Null where it lies otherwise on several ranks.
  Value main_gradient_of_converted(Value value);

  Program& program_;
  ParameterUses uses_;
  std::map<std::string, Labels> labels_;  // by their text
  std::string path_;
  Block block_ = Block::other;
  int layer_ = -1;
  Phase phase_ = Phase::forward;
};

}  // namespace tessera
