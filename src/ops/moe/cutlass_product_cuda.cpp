#include <cuda_runtime_api.h>

#include "base/error.h"
#include "device/vendor.h"
#include "ops/moe/cuda_grouped.h"
#include "ops/moe/cutlass_grouped.h"
#include "ops/moe/grouped_layout.h"

namespace tessera {

#if defined(TESSERA_CUTLASS)

namespace {

int device_attribute(cudaDeviceAttr attribute) {
  int device = 0;
  int value = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status == cudaSuccess) status = cudaDeviceGetAttribute(&value, attribute, device);
  if (status != cudaSuccess) throw Error("the device cuda: {}", cudaGetErrorString(status));
  return value;
}

/// The properties of the open device that CUTLASS needs. They are in the runtime's cache.
struct CutlassDevice {
  int capability = 10 * device_attribute(cudaDevAttrComputeCapabilityMajor) +
                   device_attribute(cudaDevAttrComputeCapabilityMinor);
  int multiprocessors = device_attribute(cudaDevAttrMultiProcessorCount);
};

GroupedOutcome call_cutlass(const GroupedShape& shape, const GroupedCall& call) {
  if (shape.kind == GroupedKind::forward) return cutlass_forward(call);
  if (shape.kind == GroupedKind::weight_gradient) return cutlass_weight_gradient(call);
  return shape.output == DType::bf16 ? cutlass_input_gradient(call)
                                     : cutlass_wide_input_gradient(call);
}

}  // namespace

std::string why_cutlass_is_missing(Runtime& runtime) {
  const int capability = runtime.cache<CutlassDevice>().capability;
  if (capability == 90) return "";
  return fmt::format(
      "CUTLASS's kernels are for devices of compute capability 9.0 (H100, H200); this one has "
      "{}.{}",
      capability / 10, capability % 10);
}

void multiply_by_cutlass(const Execution& execution, std::string_view operation,
                         const GroupedShape& shape, const GroupedOperands& operands,
                         std::byte* workspace) {
  const auto& device = execution.runtime.cache<CutlassDevice>();
  const GroupedAreas areas(shape.groups);
  const GroupTable table = areas.table(GroupedLibrary::cutlass, shape, operands, workspace);
  write_group_table_device<Cuda>(table, *execution.stream);
  const auto matrices = [&](int operand) {
    return GroupedMatrices{table.addresses[operand], table.strides[operand]};
  };
  const GroupedOutcome outcome = call_cutlass(shape, {.groups = static_cast<int>(shape.groups),
                                                      .sizes = table.sizes,
                                                      .a = matrices(0),
                                                      .b = matrices(1),
                                                      .c = matrices(2),
                                                      .d = matrices(3),
                                                      .beta = table.beta,
                                                      .multiprocessors = device.multiprocessors,
                                                      .workspace = areas.library_memory(workspace),
                                                      .workspace_bytes = areas.library_bytes(),
                                                      .stream = execution.stream->handle()});
  if (outcome.workspace_bytes > areas.library_bytes()) {
    throw Error(
        "{}: CUTLASS asks for {} bytes of scratch memory for {} groups with weights [{}, {}] on {} "
        "multiprocessors; the plan has {}. Please report it",
        operation, outcome.workspace_bytes, shape.groups, shape.out, shape.in,
        device.multiprocessors, areas.library_bytes());
  }
  if (outcome.error != nullptr) {
    throw Error("{}: CUTLASS refuses {} groups of up to {} rows with weights [{}, {}]: {}",
                operation, shape.groups, shape.rows, shape.out, shape.in, outcome.error);
  }
}

#else

std::string why_cutlass_is_missing(Runtime&) {
  return "this build was made without CUTLASS's headers: run `scripts/setup cuda`, configure and "
         "build again";
}

void multiply_by_cutlass(const Execution&, std::string_view, const GroupedShape&,
                         const GroupedOperands&, std::byte*) {
  throw InternalError("this build has no CUTLASS");
}

#endif

}  // namespace tessera
