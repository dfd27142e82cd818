#include "ops/support.h"

#include <algorithm>

#include "comm/piece_indices.h"

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

void require_indices(const Execution& execution, std::string_view what, const Tensor& indices,
                     int64_t least, int64_t extent) {
  const auto values = indices.values<int32_t>();
  const auto wrong =
      std::ranges::find_if(values, [=](int32_t value) { return value < least || value >= extent; });
  if (wrong == values.end()) return;
  throw Error(
      "{}: the {} of token {} is {}; expected {} to {}. The tokens must be those of the model's "
      "vocabulary",
      execution.name, what, wrong - values.begin(), *wrong, least, extent - 1);
}

int64_t first_row(const Program& program, Value value) {
  const Spec& spec = program.spec(value);
  if (spec.distribution.order(0).empty() || spec.shape[0] == 0) return 0;
  const int64_t all_rows = logical_extent(program.mesh(), spec.distribution, 0, spec.shape[0]);
  const std::vector<int64_t> held_rows =
      piece_of_dim(program.mesh(), spec.distribution, 0, all_rows, program.rank());
  const auto gap = std::ranges::adjacent_find(
      held_rows, [](int64_t row, int64_t next) { return next != row + 1; });
  if (gap == held_rows.end()) return held_rows.front();
  throw Error(
      "rank {} has the rows {} and {} of '{}', and not those between them; expected consecutive "
      "rows, as even pieces have them (it is {})",
      program.rank(), *gap, *(gap + 1), program.info(value).name,
      spec.distribution.text(program.mesh()));
}

}  // namespace tessera
