#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/words.h"
#include "program/runtime.h"
#include "program/value.h"
#include "tensor/tensor.h"

namespace tessera {

class Builder;
struct Node;

/// Where the executor issues an operation: what computes, and what waits for other ranks, run
/// beside one another.
enum class Lane { compute, network };
template <>
inline constexpr std::array<std::string_view, 2> kWords<Lane>{"compute", "network"};

/// Where an output lies that has no memory of its own: in that of an input.
struct View {
  int input = 0;
  int64_t byte_offset = 0;
};

/// What an operation costs, without running it.
struct Cost {
  /// Floating-point operations of its matrix products (2 a multiply-add) that the model demands:
  /// what a model's FLOPs a token and MFU count.
  double flops = 0;
  /// Of `flops`, those of the backward pass that a node of the forward pass does.
  double backward_flops = 0;
  /// Those that the operation does again instead of keeping results: beyond `flops`.
  double repeated_flops = 0;
  /// Bytes read and written: each operand once, however often the operation comes back to it, and
  /// twice where it is read and written (main gradients). Of a table of which only some rows are
  /// touched, those rows; of a cache all, for how much of it is filled is known at the run only.
  double bytes = 0;
};

/// One run of an operation. Tensors are contiguous and of the inferred specs; `workspace` has the
/// size that workspace_bytes() gave and is aligned to 64 bytes.
struct Execution {
  Runtime& runtime;
  std::span<const Tensor> inputs;
  std::span<const Tensor> outputs;
  std::span<std::byte> workspace;
};

/// Everything known about one kind of operation. Its attributes are constant members; a node of a
/// program refers to it. Operations with integer results (indices, counts) give them no gradient.
class Operation {
 public:
  virtual ~Operation() = default;

  /// "linear", "attention_gradient": what tables, traces and errors call it.
  virtual std::string_view name() const = 0;

  /// The specs of the outputs. Throws InternalError naming the operation and the shapes when the
  /// inputs do not fit.
  virtual std::vector<Spec> infer(std::span<const Spec> inputs) const = 0;

  /// Builds the gradients of the inputs from those of the outputs (null where nothing depends on
  /// that output), as operations; never calls kernels. Gives one value an input: null where there
  /// is no gradient; builder.main_gradient(input) itself where the built operation has already
  /// added into it. A gradient may be of a wider type than its input. What is built for the inputs
  /// stands before what is built for weights, so that a chunk can pass its boundary's gradients on
  /// first. The default gives none.
  virtual std::vector<Value> gradient(Builder& builder, const Node& self,
                                      std::span<const Value> of_outputs) const;

  /// The inputs that recompute() needs when the outputs in `kept` stayed in memory (null where one
  /// did not); null where one is not needed, so that it need not be kept either. The default needs
  /// all of them.
  virtual std::vector<Value> recompute_inputs(const Node& self, std::span<const Value> kept) const;

  /// Builds the outputs again from `inputs`, what recompute_inputs() asked for as it is available
  /// in the backward pass. The default applies the operation once more.
  virtual std::vector<Value> recompute(Builder& builder, const Node& self,
                                       std::span<const Value> inputs,
                                       std::span<const Value> kept) const;

  /// What one run costs on these inputs.
  virtual Cost cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const = 0;

  /// Whether repeating it in the backward pass always beats keeping its results (a cast).
  virtual bool cheap_to_repeat() const { return false; }

  /// Where it runs; the default computes.
  virtual Lane lane() const { return Lane::compute; }

  /// Bytes of scratch memory that one run takes on a target.
  virtual int64_t workspace_bytes(const Target& target, std::span<const Spec> inputs) const;

  /// The inputs that run() adds into (main gradients, caches), by position.
  virtual std::vector<int> updated_inputs() const { return {}; }

  /// Of an output that is a part of an input's memory, which part: then run() is not called.
  virtual std::optional<View> view(int output) const;

  /// The input whose memory output `output` may take over when the input is not needed again: run()
  /// must be right when both are the same memory. -1: none.
  virtual int in_place_input(int output) const;

  /// Computes the outputs, and adds into updated_inputs(). Equal inputs give equal bits.
  virtual void run(const Execution& execution) const = 0;
};

}  // namespace tessera
