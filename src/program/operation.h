#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
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

// What every operation of a program can be asked: class Operation, at the end. The types before it
// are arguments and results of its members.

class Builder;
class CallList;
struct Node;

/// The lane of an operation: a role in a rank's work. The operations of a lane run in the program's
/// order, and those of different lanes at the same time, if none needs what another makes. Each
/// lane has communicators of its own. Traces show a row for each.
enum class Lane : uint8_t {
  compute,            ///< may communicate within an operation
  exchanges,          ///< of activations and their gradients, over tensor, context and expert axes
  reductions,         ///< sums of gradients, and gathers of weights and states
  messages_forward,   ///< activations for the next stage of a pipeline
  messages_backward,  ///< their gradients, for the stage before
};
template <>
inline constexpr std::array<std::string_view, 5> kWordsOf<Lane>{
    "compute", "exchanges", "reductions", "messages forward", "messages backward"};
inline constexpr size_t kLanes = kWordsOf<Lane>.size();

/// An output that has no memory of its own: its memory is a part of an input's.
struct View {
  int input = 0;
  int64_t byte_offset = 0;
  /// True if the output is all of the input under another type. The operation's own rule then gives
  /// the gradient. Otherwise the output's gradient is a part of the input's gradient.
  bool retyped = false;
  /// True for a conversion on axes of one rank, which would move data if the axes had more ranks.
  bool elided = false;
};

/// The bytes that a rank sends in a collective over some axes of the mesh.
struct WireBytes {
  std::vector<Axis> axes;
  double bytes = 0;
};

/// The cost of one run of an operation, known without running it.
struct Cost {
  /// The floating-point operations of the matrix products that the model requires, 2 for each
  /// multiply-add. FLOPs per token and MFU count these.
  double flops = 0;
  /// The part of `flops` that a forward node does for the backward pass.
  double backward_flops = 0;
  /// The FLOPs that the operation repeats instead of keeping results. They are not part of `flops`.
  double repeated_flops = 0;
  /// The bytes read and written. Each operand counts once, however often the operation reads it,
  /// and twice if it is both read and written (main gradients). A table of which only some rows are
  /// touched counts with those rows. A cache counts in full, because its filled part is known only
  /// at run time.
  double bytes = 0;
  /// The bytes that a rank sends, by the axes of the collective. If the ranks of the group send
  /// different numbers of bytes, this is their average.
  std::vector<WireBytes> wire;
};

/// Returns the bytes of all operands by the rule of Cost::bytes. `updated` has the indices of the
/// inputs that are read and written as a whole (see Operation::updated_inputs()).
double operand_bytes(std::span<const Spec> inputs, std::span<const Spec> outputs,
                     std::span<const int> updated = {});

/// A matrix product C = A B, or several of the same shape, that an operation computes.
struct MatrixProduct {
  double rows = 1;     ///< of A and C
  double columns = 1;  ///< of B and C
  double terms = 1;    ///< of each sum
  double count = 1;    ///< of products
  /// Whether the dim that is summed is the last one of A, and of B. They say the layout in memory.
  bool first_ends = false;
  bool second_ends = false;

  double flops() const { return 2 * rows * columns * terms * count; }
};

/// Returns the matrix products that labels name. Two factors of a term form a product, as in
/// `t i, o i -> t o`, if they share a label that no output has, and each has a label of an output
/// that the other lacks. In `(E r) i, E o i -> (E r) o` each row counts once, with the matrix of
/// its expert. `operands` are the shapes of the labels' inputs; operands marked `?` may be left out
/// at the end.
std::vector<MatrixProduct> matrix_products(const Labels& labels, std::span<const Shape> operands);

/// One run of an operation. On an accelerator the run is enqueued on a stream and happens later.
/// Tensors are contiguous and have the inferred specs. `workspace` has the size that
/// workspace_bytes() returned and is aligned to 64 bytes.
struct Execution {
  Runtime& runtime;
  std::span<const Tensor> inputs;
  std::span<const Tensor> outputs;
  std::span<std::byte> workspace;
  /// The accelerator's stream; null on the processor. With a stream, the tensors and the workspace
  /// are in the accelerator's memory: run() only passes their addresses to kernels.
  Stream* stream = nullptr;
  /// For messages: the name of the node's first output, or of its first input if it has no output.
  std::string_view name;
  /// The groups of ranks for collectives (see Operation::group_axes()).
  std::span<Communicator* const> groups = {};
  /// True if the compute lane computes meanwhile, on the processor.
  bool is_beside_compute = false;

  /// Returns the number of threads for loops on the processor. Beside the compute lane, whose loops
  /// have the runtime's threads, it is one.
  int threads() const { return is_beside_compute ? 1 : runtime.threads(); }
  const Target& target() const { return runtime.target(); }
  /// Returns the only group. Throws InternalError if there is not exactly one.
  Communicator& group() const;
  /// Returns the stream and the workspace for calls of the groups.
  DeviceCall call() const { return {.stream = stream, .workspace = workspace}; }
};

/// One run of an operation whose calls of other ranks are listed before it is made: types in place
/// of tensors, and lists in place of groups. The other members are those of Execution.
struct CallListing {
  const Target& target;
  std::span<const Spec> inputs;
  std::span<const Spec> outputs;
  std::string_view name;
  std::span<CallList* const> groups;

  /// Returns the list of the only group. Throws InternalError if there is not exactly one.
  CallList& group() const;
};

/// Everything known about one kind of operation. Its attributes are constant members, and nodes of
/// programs refer to it. Integer results (indices, counts) have no gradient.
class Operation {
 public:
  virtual ~Operation() = default;

  /// Returns the name in tables, traces and errors: "linear", "attention_gradient".
  virtual std::string_view name() const = 0;

  /// Returns names for the dims of its operands (see program/labels.h), from which the
  /// distributions of the outputs follow. Before the arrow are the inputs that it only reads, in
  /// their order, and the shape_operands(); after it the outputs, and then the updated_inputs(),
  /// marked `+=`.
  virtual std::string labels(std::span<const Spec> inputs) const = 0;

  /// Returns the hand-written rule of distribution (see HandRule), or an empty one.
  virtual HandRule hand_rule() const { return {}; }

  /// Returns the distributions of the outputs if the operation gives them itself, without labels or
  /// a rule for each axis. Conversions do, which change the distribution, and parts of a unit.
  /// Throws DistributionError if the inputs do not fit.
  virtual std::optional<std::vector<Distribution>> distributions(
      const Mesh& /*mesh*/, std::span<const TypedOperand> /*inputs*/) const {
    return std::nullopt;
  }

  /// Returns operands that the labels use for their shapes alone. run() does not get them.
  virtual std::vector<Spec> shape_operands() const { return {}; }

  /// Returns the shapes and dtypes of the outputs; the Builder adds their distribution. Throws
  /// InternalError, which names the operation and the shapes, if the inputs do not fit.
  virtual std::vector<Spec> infer(std::span<const Spec> inputs) const = 0;

  /// Builds the operations that compute the gradients of the inputs; never calls kernels.
  /// `output_gradients` has a value per output: null if nothing depends on the output. Returns one
  /// value per input: null if the input has no gradient, or builder.main_gradient(input) itself if
  /// a built operation already adds into it. A gradient may have a wider dtype than its input.
  /// Gradients of weights come last, so that a chunk can send its boundary's gradients early. The
  /// default returns no gradients.
  virtual std::vector<Value> gradient(Builder& builder, const Node& self,
                                      std::span<const Value> output_gradients) const;

  /// Returns the inputs, with null for those that recompute() does not need: they need not be kept.
  /// `kept` has the outputs that stayed in memory, with null for the others. By default recompute()
  /// needs all inputs.
  virtual std::vector<Value> recompute_inputs(const Node& self, std::span<const Value> kept) const;

  /// Builds the outputs again and returns them. `inputs` are those of recompute_inputs(), or their
  /// own recomputed copies. The default applies the operation once more.
  virtual std::vector<Value> recompute(Builder& builder, const Node& self,
                                       std::span<const Value> inputs,
                                       std::span<const Value> kept) const;

  /// Returns the cost of one run on these inputs. The default follows from the labels: all operands
  /// are read or written once, and the matrix products are those of matrix_products().
  virtual Cost cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const;

  /// Returns whether the backward pass should always repeat it, as a cast, and not keep results.
  virtual bool cheap_to_repeat() const { return false; }

  /// Returns the lane on which it runs; by default the compute lane.
  virtual Lane lane() const { return Lane::compute; }

  /// Returns the groups of ranks with which run() communicates, each as its axes, innermost first;
  /// by default none. The executor looks up the communicators once, before any run.
  virtual std::vector<std::vector<Axis>> group_axes() const { return {}; }
  /// Returns the pipeline stages whose ranks are in these groups; by default all. Only groups over
  /// the pipeline axis leave stages out.
  virtual std::span<const int> group_stages() const { return {}; }

  /// Adds the calls that run() makes in these groups, in their order. All ranks compare their lists
  /// before the first step (agree_on_calls()), and a call that is not listed is refused.
  virtual void list_calls(const CallListing&) const {}

  /// Returns the bytes of workspace that one run needs on a target.
  virtual int64_t workspace_bytes(const Target&, std::span<const Spec> /*inputs*/) const {
    return 0;
  }

  /// Returns the indices of the inputs that run() adds into (main gradients, caches).
  virtual std::vector<int> updated_inputs() const { return {}; }

  /// Returns whether gradient() accepts gradients in the accumulation dtype for outputs of another
  /// dtype. If all operations between a parameter and the weight that is read do (such as gathering
  /// a unit), the parameter gets a gradient that was never rounded.
  virtual bool takes_wide_gradients() const { return false; }

  /// Returns the part of an input's memory that an output is, or none if the output has its own
  /// memory. run() is not called for a view.
  virtual std::optional<View> view(int /*output*/) const { return std::nullopt; }

  /// Returns the input whose memory output `output` may reuse if that input is not needed again; -1
  /// for none. run() must be right when both are the same memory.
  virtual int in_place_input(int /*output*/) const { return -1; }

  /// Opens the libraries that run() needs on the runtime's accelerator for inputs of these specs.
  /// Throws Error if one is missing. The default opens nothing.
  virtual void require_runnable(Runtime&, std::span<const Spec> /*inputs*/) const {}

  /// Computes the outputs and adds into updated_inputs(). Equal inputs give equal bits, except on a
  /// device if Target::deterministic is false.
  virtual void run(const Execution& execution) const = 0;
};

}  // namespace tessera
