#pragma once

#include <vector>

#include "engine/lifetimes.h"
#include "engine/trace.h"
#include "program/program.h"
#include "program/runtime.h"
#include "tensor/tensor.h"

namespace tessera {

/// The tensors of one execution of a program: one frame for each micro-batch in flight.
class Frame {
 public:
  /// Without memory yet; refers to the program, which must outlive it.
  explicit Frame(const Program& program) : program_(&program), tensors_(program.values().size()) {}

  /// Gives the memory of an input, a parameter, a main gradient or a state; its spec must fit.
  void bind(Value value, Tensor tensor);
  /// A bound value, or an output after the run.
  const Tensor& operator[](Value value) const;
  /// Gives back the memory of everything computed: the outputs of the last run.
  void release();

 private:
  friend class Executor;
  const Program* program_;
  std::vector<Tensor> tensors_;
};

/// Runs a program's nodes in order, taking memory from the runtime's pool and giving it back after
/// each value's last use.
class Executor {
 public:
  /// Prepares every operation's kernels; refers to both, which must outlive it.
  Executor(const Program& program, Runtime& runtime);

  /// Runs the forward pass. Values bound beforehand and the program's outputs stay in the frame; a
  /// frame may be run again, which first releases those outputs.
  void forward(Frame& frame) const;
  /// Runs the backward pass on a frame whose forward pass has run.
  void backward(Frame& frame) const;
  /// Runs both.
  void run(Frame& frame) const;

  /// Records each node's time there while it is set.
  void set_trace(Trace* trace) { trace_ = trace; }
  /// Checks every floating result for NaN and infinity; the first one found throws Error with the
  /// name of the value and of the operation that made it.
  void set_check_finite(bool check) { check_finite_ = check; }

 private:
  void run_node(Frame& frame, int index) const;
  void run_range(Frame& frame, int begin, int end) const;

  const Program& program_;
  Runtime& runtime_;
  Lifetimes lifetimes_;
  std::vector<int64_t> workspace_bytes_;
  Trace* trace_ = nullptr;
  bool check_finite_ = false;
};

/// The position of the first NaN or infinity, or -1.
int64_t first_non_finite(const Tensor& tensor);

}  // namespace tessera
