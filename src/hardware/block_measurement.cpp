#include "hardware/block_measurement.h"

#include <algorithm>

#include "base/error.h"
#include "base/process_memory.h"
#include "base/progress.h"
#include "engine/executor.h"
#include "hardware/random_fill.h"
#include "tensor/tensor.h"

namespace tessera {
namespace {

void fill(const BlockProgram& block, Value value, const Tensor& tensor, int threads) {
  const ValueInfo& info = block.program.info(value);
  if (info.kind == ValueKind::main_gradient) {
    tensor.fill_zero();
  } else if (is_floating(tensor.dtype())) {
    const auto given = block.deviations.find(value.id);
    const double deviation = given == block.deviations.end() ? 1 : given->second;
    fill_normal(tensor, info.name, deviation, threads);
  } else {
    const std::vector<int32_t>& integers = block.integers.at(value.id);
    TESSERA_CHECK(static_cast<int64_t>(integers.size()) == tensor.elements(),
                  "{} numbers for {} of {}", integers.size(), info.name, tensor.shape().text());
    std::copy(integers.begin(), integers.end(), tensor.data<int32_t>());
  }
}

void bind_all(const BlockProgram& block, MemoryPool& pool, Frame& frame, int threads) {
  for (size_t id = 0; id < block.program.values().size(); ++id) {
    const ValueInfo& info = block.program.values()[id];
    if (info.kind == ValueKind::computed) continue;
    const Value value{static_cast<int>(id)};
    const Tensor tensor(pool, info.spec.shape, info.spec.dtype);
    fill(block, value, tensor, threads);
    frame.bind(value, tensor);
  }
}

}  // namespace

BlockMeasurement measure_block(const BlockProgram& block, int threads, const Repeats& repeats) {
  MemoryPool pool;
  Context context(threads, Kernels::fast, &pool);
  Frame frame(block.program);
  bind_all(block, pool, frame, threads);
  const Executor executor(block.program, context);
  BlockMeasurement result;
  repeats.each([&](bool measured) {
    const Stopwatch watch;
    executor.forward(frame);
    const double forward = watch.seconds();
    executor.backward(frame);
    const double both = watch.seconds();
    if (!measured) return;
    result.forward_seconds.push_back(forward);
    result.forward_backward_seconds.push_back(both);
  });
  result.pool_bytes = pool.peak_in_use();
  result.peak_memory_bytes = peak_resident_bytes();
  for (const Value output : block.program.outputs()) {
    if (block.program.spec(output).dtype != DType::i32) continue;
    const auto values = frame[output].values<int32_t>();
    result.integer_outputs.emplace_back(values.begin(), values.end());
  }
  return result;
}

}  // namespace tessera
