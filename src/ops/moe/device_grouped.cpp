#include "ops/moe/device_grouped.h"

#include "ops/gemm/device_gemm.h"
#include "ops/moe/cuda_grouped.h"
#include "ops/moe/grouped_layout.h"
#include "ops/support.h"

namespace tessera {
namespace {

/// The number of bf16 elements in 16 bytes, the unit in which the device cuda copies tiles.
constexpr int64_t kTileStep = 8;

void multiply_floats(const Execution& execution, const GroupedShape& shape,
                     const GroupedOperands& operands) {
  TESSERA_CHECK(!shape.adds || operands.sum == operands.result,
                "products in f32 are added in place");
  const GroupedLayout layout = grouped_layout(shape, operands);
  const int64_t a_stride = layout.a.stride, b_stride = layout.b.stride;
  const bool rows_are_k = layout.rows_are_k;
  const bool b_by_rows = shape.kind == GroupedKind::forward;  // k runs along a row of the weight
  const FloatProduct product{.groups = shape.groups,
                             .rows = shape.rows,
                             .offsets = operands.offsets,
                             .size = {layout.size[0], layout.size[1], layout.size[2]},
                             .rows_are_k = rows_are_k,
                             .a = {layout.a, rows_are_k ? 1 : a_stride, rows_are_k ? a_stride : 1},
                             .b = {layout.b, b_by_rows ? b_stride : 1, b_by_rows ? 1 : b_stride},
                             .d = layout.d,
                             .accumulate = rows_are_k || shape.adds};
  for_vendor(*execution.stream, [&]<typename Vendor>(Vendor) {
    float_product_device<Vendor>(product, *execution.stream);
  });
}

[[noreturn]] void refuse_grouped(std::string_view operation, Device device) {
  if (device == Device::hip) require_hipblaslt_groups(operation);
  throw InternalError(
      fmt::format("{}: no products of experts in bf16 on the device {}", operation, word(device)));
}

}  // namespace

bool has_device_grouped(Device device, DType input) {
  return device != Device::emulated || input == DType::f32;
}

int64_t device_grouped_workspace_bytes(const Target& target, std::string_view operation,
                                       const GroupedShape& shape) {
  if (shape.input != DType::bf16 || target.device != Device::cuda) return 0;
  if (shape.in % kTileStep != 0 || shape.out % kTileStep != 0) {
    throw Error(
        "{}: experts' weights [{}, {}] in bf16; on the device cuda both are multiples of {}: "
        "change model.hidden_size or model.expert_size, or set train.precision = \"fp32\"",
        operation, shape.out, shape.in, kTileStep);
  }
  return GroupedAreas(shape.groups).bytes();
}

void device_grouped(const Execution& execution, std::string_view operation,
                    const GroupedShape& shape, const GroupedOperands& operands,
                    [[maybe_unused]] std::byte* workspace) {
  if (shape.rows == 0 || shape.groups == 0) return;
  if (shape.input == DType::f32) return multiply_floats(execution, shape, operands);
#if defined(TESSERA_CUDA)
  if (execution.stream->device() == Device::cuda) {
    return cuda_grouped(execution, operation, shape, operands, workspace);
  }
#endif
  refuse_grouped(operation, execution.stream->device());
}

void require_device_grouped(Runtime& runtime, std::string_view operation,
                            const GroupedShape& shape) {
  const Device device = runtime.target().device;
  if (shape.rows == 0 || shape.groups == 0) return;
  if (shape.input == DType::f32 || device == Device::emulated) return;
#if defined(TESSERA_CUDA)
  if (device == Device::cuda) return require_cuda_grouped(runtime, operation, shape);
#endif
  refuse_grouped(operation, device);
}

std::vector<GroupedShape> device_grouped_shapes(Runtime& runtime) {
  return runtime.cache<GroupedChoices>().shapes();
}

TunedGrouped tune_device_grouped([[maybe_unused]] Runtime& runtime,
                                 [[maybe_unused]] const GroupedShape& shape,
                                 [[maybe_unused]] const TuningBudget& budget) {
#if defined(TESSERA_CUDA)
  if (runtime.target().device == Device::cuda) return tune_cuda_grouped(runtime, shape, budget);
#endif
  throw InternalError("no products of groups to tune on this device");
}

}  // namespace tessera
