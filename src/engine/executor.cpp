#include "engine/executor.h"

#include <cmath>
#include <utility>

#include "base/error.h"
#include "tensor/dispatch.h"

namespace tessera {

void Frame::bind(Value value, Tensor tensor) {
  const ValueInfo& info = program_->info(value);
  TESSERA_CHECK(info.kind != ValueKind::computed, "{} is computed, not bound", info.name);
  TESSERA_CHECK(tensor.shape() == info.spec.shape && tensor.dtype() == info.spec.dtype,
                "{} is {} {}, a tensor of {} {} was bound to it", info.name,
                dtype_name(info.spec.dtype), info.spec.shape.text(), dtype_name(tensor.dtype()),
                tensor.shape().text());
  tensors_[static_cast<size_t>(value.id)] = std::move(tensor);
}

const Tensor& Frame::operator[](Value value) const {
  const Tensor& tensor = tensors_[static_cast<size_t>(value.id)];
  TESSERA_CHECK(tensor.defined(), "{} has no memory: it was not bound, or its memory was released",
                program_->info(value).name);
  return tensor;
}

void Frame::release() {
  for (size_t id = 0; id < tensors_.size(); ++id) {
    if (program_->values()[id].kind == ValueKind::computed) tensors_[id] = Tensor();
  }
}

Executor::Executor(const Program& program, Runtime& runtime)
    : program_(program), runtime_(runtime), lifetimes_(program) {
  for (const Node& node : program.nodes()) {
    workspace_bytes_.push_back(
        node.operation->workspace_bytes(runtime.target(), program.specs(node.inputs)));
  }
}

void Executor::forward(Frame& frame) const {
  frame.release();
  run_range(frame, 0, program_.forward_size());
}

void Executor::backward(Frame& frame) const {
  run_range(frame, program_.forward_size(), static_cast<int>(program_.nodes().size()));
}

void Executor::run(Frame& frame) const {
  forward(frame);
  backward(frame);
}

void Executor::run_range(Frame& frame, int begin, int end) const {
  for (int i = begin; i < end; ++i) run_node(frame, i);
}

void Executor::run_node(Frame& frame, int index) const {
  const Node& node = program_.nodes()[static_cast<size_t>(index)];
  const auto slot = [&](Value value) -> Tensor& {
    return frame.tensors_[static_cast<size_t>(value.id)];
  };
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
  inputs.reserve(node.inputs.size());
  outputs.reserve(node.outputs.size());
  for (const Value input : node.inputs) inputs.push_back(frame[input]);
  for (const Value output : node.outputs) {
    const Spec& spec = program_.spec(output);
    const Value previous = lifetimes_.takes_over(output);
    slot(output) = previous ? std::exchange(slot(previous), Tensor()).reshape(spec.shape)
                            : Tensor(runtime_.pool(), spec.shape, spec.dtype);
    outputs.push_back(slot(output));
  }
  {
    const int64_t bytes = workspace_bytes_[static_cast<size_t>(index)];
    const auto workspace = bytes > 0 ? runtime_.pool().allocate(bytes) : nullptr;
    const Trace::Span span(trace_, program_, node);
    node.operation->run({runtime_,
                         inputs,
                         outputs,
                         {workspace ? workspace->data() : nullptr, static_cast<size_t>(bytes)}});
  }
  if (check_finite_) {
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (is_floating(outputs[i].dtype()) && first_non_finite(outputs[i]) >= 0) {
        throw Error("{} is not finite at element {} (made by {} in the {} pass)",
                    program_.info(node.outputs[i]).name, first_non_finite(outputs[i]),
                    node.operation->name(), phase_name(node.phase));
      }
    }
  }
  inputs.clear();
  outputs.clear();
  for (const Value value : lifetimes_.released_after(index)) slot(value) = Tensor();
}

int64_t first_non_finite(const Tensor& tensor) {
  return dispatch_floating(tensor.dtype(), [&](auto type) -> int64_t {
    using T = decltype(type);
    const std::span<T> values = tensor.values<T>();
    for (size_t i = 0; i < values.size(); ++i) {
      if (!std::isfinite(static_cast<Compute<T>>(values[i]))) return static_cast<int64_t>(i);
    }
    return -1;
  });
}

}  // namespace tessera
