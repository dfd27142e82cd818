#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "ops/host_target.h"
#include "program/builder.h"
#include "support/label_case.h"

namespace tessera::testing {

/// The node of a case's operation for a rank, and the specs of its inputs.
struct MadeOperation {
  std::shared_ptr<const Operation> operation;
  std::vector<Spec> inputs;
};

inline MadeOperation make_operation(const LabelCase& of, const LabelRanges& ranges) {
  Program program;
  Builder builder(program);
  of.write(builder, ranges);
  for (size_t i = program.nodes().size(); i-- > 0;) {
    const Node& node = program.nodes()[i];
    if (node.operation->name() == of.operation) {
      return {node.operation, program.specs(node.inputs)};
    }
  }
  throw InternalError("no node " + of.operation + " is written by its case of labels");
}

/// The elements of a tensor of any type as f64.
inline std::vector<double> numbers_of(const Tensor& tensor) {
  if (tensor.dtype() == DType::i32) {
    return {tensor.values<int32_t>().begin(), tensor.values<int32_t>().end()};
  }
  const Tensor wide(tensor.shape(), DType::f64);
  convert(tensor, wide);
  return {wide.values<double>().begin(), wide.values<double>().end()};
}

inline Tensor copy_of(const Tensor& tensor) {
  const Tensor copy(tensor.shape(), tensor.dtype());
  copy.copy_from(tensor);
  return copy;
}

/// A tensor of random normal numbers; the same ones for the same name.
inline Tensor drawn(const Spec& spec, const std::string& name, bool positive = false) {
  const Tensor wide(spec.shape, DType::f64);
  const CounterRandom random(23, name);
  for (int64_t i = 0; i < wide.elements(); ++i) {
    const double number = random.normal(static_cast<uint64_t>(i));
    wide.data<double>()[i] = positive ? 0.5 + std::abs(number) : number;
  }
  const Tensor result(spec.shape, spec.dtype);
  convert(wide, result);
  return result;
}

inline void fill_with_nan(std::byte* memory, int64_t bytes) {
  std::memset(memory, 0xff, static_cast<size_t>(bytes));
}

/// Runs an operation's plain kernel. It changes the inputs that it updates. Outputs and workspace
/// are NaN before.
inline std::vector<Tensor> run_plain(const MadeOperation& made, const std::vector<Tensor>& inputs) {
  static Runtime runtime(host_target(1, Kernels::plain));
  std::vector<Tensor> outputs;
  for (const Spec& spec : made.operation->infer(made.inputs)) {
    if (const auto view = made.operation->view(static_cast<int>(outputs.size()))) {
      const Tensor& base = inputs[static_cast<size_t>(view->input)];
      outputs.push_back(base.view(view->byte_offset / dtype_size(spec.dtype), spec.shape));
      continue;
    }
    outputs.emplace_back(spec.shape, spec.dtype);
    fill_with_nan(outputs.back().raw(), outputs.back().bytes());
  }
  const int64_t bytes = made.operation->workspace_bytes(runtime.target(), made.inputs);
  const Tensor workspace({bytes + 64}, DType::u8);
  fill_with_nan(workspace.raw(), bytes);
  made.operation->run({runtime, inputs, outputs, {workspace.raw(), static_cast<size_t>(bytes)}});
  return outputs;
}

}  // namespace tessera::testing
