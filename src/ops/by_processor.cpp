#include "ops/by_processor.h"

#include <vector>

#include "base/error.h"

namespace tessera {
namespace {

/// Returns tensors of the processor over the same memory. Only work on the emulated stream may read
/// them: around it the stream opens the fence of this memory (device/emulated_memory.h).
std::vector<Tensor> as_host(std::span<const Tensor> tensors) {
  std::vector<Tensor> result;
  for (const Tensor& tensor : tensors) {
    result.push_back(Tensor::wrap(tensor.address(), tensor.shape(), tensor.dtype()));
  }
  return result;
}

}  // namespace

void run_by_processor(const Operation& operation, const Execution& execution) {
  TESSERA_CHECK(execution.stream->device() == Device::emulated, "no {} on the device {}",
                operation.name(), word(execution.stream->device()));
  execution.stream->enqueue(
      [&operation, &runtime = execution.runtime, inputs = as_host(execution.inputs),
       outputs = as_host(execution.outputs), workspace = execution.workspace] {
        operation.run({runtime, inputs, outputs, workspace});
      });
}

}  // namespace tessera
