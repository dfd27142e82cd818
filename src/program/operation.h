#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/words.h"
#include "program/derive.h"
#include "program/runtime.h"
#include "program/value.h"
#include "tensor/tensor.h"

namespace tessera {

class Builder;
struct Node;

/// The executor's lane that an operation belongs to: it computes, or it waits for other ranks.
/// Traces show a row for each. The executor of one rank runs all operations in the program's order.
enum class Lane { compute, network };
template <>
inline constexpr std::array<std::string_view, 2> kWords<Lane>{"compute", "network"};

/// The place of an output that has no memory of its own: it lies in the memory of an input.
struct View {
  int input = 0;
  int64_t byte_offset = 0;
  /// Whether it is all of the input under another type. The gradient is then the operation's own
  /// rule, and not a part of the input's.
  bool retyped = false;
  /// Whether it would move something if its axes had more ranks: a conversion on axes of one rank.
  bool elided = false;
};

/// The bytes that a rank sends in a collective over some axes of the mesh.
struct WireBytes {
  std::vector<Axis> axes;
  double bytes = 0;
};

/// The cost of one run of an operation, known without running it.
struct Cost {
  /// The floating-point operations of its matrix products (2 per multiply-add) that the model
  /// requires. A model's FLOPs per token and its MFU count these.
  double flops = 0;
  /// The part of `flops` that belongs to the backward pass but is done by a node of the forward
  /// pass.
  double backward_flops = 0;
  /// The FLOPs that the operation repeats instead of keeping results. They are not part of `flops`.
  double repeated_flops = 0;
  /// The bytes read and written. Each operand counts once, however often the operation returns to
  /// it, and twice if it is both read and written (main gradients). A table of which only some rows
  /// are touched counts with those rows. A cache counts in full, because how much of it is filled
  /// is known only at run time.
  double bytes = 0;
  /// The bytes that a rank puts on the wire, by the axes over which it meets the others. On the
  /// average over the ranks of the group, where they differ.
  std::vector<WireBytes> wire;
};

/// The bytes of all operands by the rule of Cost::bytes. `updated` has the positions of the inputs
/// that are read and written as a whole (see Operation::updated_inputs()).
double operand_bytes(std::span<const Spec> inputs, std::span<const Spec> outputs,
                     std::span<const int> updated = {});

/// One run of an operation. On an accelerator it is put into a stream, and happens later. Tensors
/// are contiguous and have the inferred specs. `workspace` has the size that workspace_bytes()
/// returned and is aligned to 64 bytes.
struct Execution {
  Runtime& runtime;
  std::span<const Tensor> inputs;
  std::span<const Tensor> outputs;
  std::span<std::byte> workspace;
  /// Where an accelerator's work goes; null on the processor. The tensors and the workspace lie in
  /// the accelerator's memory, which run() hands to kernels and never reads itself.
  Stream* stream = nullptr;
  /// Of the node, for messages: of its first output, or of its first input if it has none.
  std::string_view name;
  /// The groups of ranks that the operation meets (see Operation::meets()).
  std::span<Communicator* const> groups = {};

  /// The only group. Throws InternalError if there is another number of them.
  Communicator& group() const;
  /// Where calls of the groups do their work.
  DeviceCall call() const { return {.stream = stream, .workspace = workspace}; }
};

/// Everything known about one kind of operation. Its attributes are constant members, and nodes of
/// programs refer to it. Integer results (indices, counts) have no gradient.
class Operation {
 public:
  virtual ~Operation() = default;

  /// The name in tables, traces and errors: "linear", "attention_gradient".
  virtual std::string_view name() const = 0;

  /// The dims of its operands by name (see program/labels.h): first the inputs that it only reads,
  /// in their order, and the shape_operands(); then the outputs, and after them, marked `+=`, the
  /// updated_inputs(). How the outputs lie over the ranks follows from them.
  virtual std::string labels(std::span<const Spec> inputs) const = 0;

  /// The rule of distribution beside the labels, if it has one.
  virtual HandRule hand_rule() const { return {}; }

  /// How the outputs lie if neither labels nor a rule for each axis say it: of conversions, which
  /// change that, and of parts of a unit. They refuse by themselves, with DistributionError.
  virtual std::optional<std::vector<Distribution>> distributions(
      const Mesh& mesh, std::span<const TypedOperand> inputs) const;

  /// Operands of which labels use the shape alone, and which run() does not get.
  virtual std::vector<Spec> shape_operands() const { return {}; }

  /// The shapes and types of the outputs; the Builder adds their distribution. Throws
  /// InternalError, which names the operation and the shapes, if the inputs do not fit.
  virtual std::vector<Spec> infer(std::span<const Spec> inputs) const = 0;

  /// Builds the operations that compute the gradients of the inputs; never calls kernels.
  /// `of_outputs` has the gradients of the outputs, null if nothing depends on an output. Returns
  /// one value per input: null if it has no gradient, or builder.main_gradient(input) itself if the
  /// built operation already adds into it. A gradient may have a wider type than its input. What is
  /// built for inputs comes before what is built for weights, so a chunk can pass on its boundary's
  /// gradients first. The default returns no gradients.
  virtual std::vector<Value> gradient(Builder& builder, const Node& self,
                                      std::span<const Value> of_outputs) const;

  /// The inputs that recompute() needs. An input that it does not need is null, and need not be
  /// kept either. `kept` has the outputs that stayed in memory, null for one that did not. The
  /// default needs all inputs.
  virtual std::vector<Value> recompute_inputs(const Node& self, std::span<const Value> kept) const;

  /// Builds the outputs again. `inputs` are those that recompute_inputs() asked for, as they are
  /// available in the backward pass. The default applies the operation once more.
  virtual std::vector<Value> recompute(Builder& builder, const Node& self,
                                       std::span<const Value> inputs,
                                       std::span<const Value> kept) const;

  /// The cost of one run on these inputs. The default follows from the labels: all operands are
  /// read or written once, and what they name a matrix product counts as one (see
  /// matrix_product_flops()).
  virtual Cost cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const;

  /// Whether repeating it in the backward pass is always better than keeping its results (a cast).
  virtual bool cheap_to_repeat() const { return false; }

  /// The lane on which it runs; by default the compute lane.
  virtual Lane lane() const { return Lane::compute; }

  /// The groups in which run() meets other ranks on the operation's lane: of each the axes, the
  /// innermost first. By default there are none. The executor finds the ranks once, before any run.
  virtual std::vector<std::vector<Axis>> meets() const { return {}; }

  /// The bytes of workspace that one run needs on a target.
  virtual int64_t workspace_bytes(const Target& target, std::span<const Spec> inputs) const;

  /// The positions of the inputs that run() adds into (main gradients, caches).
  virtual std::vector<int> updated_inputs() const { return {}; }

  /// Whether gradient() takes gradients in the accumulation type for outputs of another type. If an
  /// operation of this kind makes a weight of parameters (a part of a gathered unit, say), the
  /// parameters get a gradient that was never rounded.
  virtual bool takes_wide_gradients() const { return false; }

  /// The part of an input's memory that an output is, or none if the output has its own memory.
  /// run() is not called for a view.
  virtual std::optional<View> view(int output) const;

  /// The input whose memory output `output` may take over if that input is not needed again; -1 for
  /// none. run() must be right when both are the same memory.
  virtual int in_place_input(int output) const;

  /// Opens what run() needs of the runtime's accelerator for such inputs. Throws Error if it is
  /// missing. By default nothing is needed but the accelerator.
  virtual void require_runnable(Runtime& runtime, std::span<const Spec> inputs) const;

  /// Computes the outputs and adds into updated_inputs(). Equal inputs give equal bits.
  virtual void run(const Execution& execution) const = 0;
};

}  // namespace tessera
