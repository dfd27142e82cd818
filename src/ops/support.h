#pragma once

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "device/vendor.h"
#include "program/builder.h"
#include "tensor/dispatch.h"

/// Checks a condition on an operation's operands. Throws InternalError, which names the operation.
#define TESSERA_EXPECT(operation, condition, ...) \
  TESSERA_CHECK(condition, "{}: {}", (operation).name(), ::fmt::format(__VA_ARGS__))

namespace tessera {

/// Returns the number of rows of vectorised work that is worth a thread's start: about 16 Ki
/// elements.
inline int64_t row_grain(int64_t columns) {
  return std::max<int64_t>(1, 16384 / std::max<int64_t>(columns, 1));
}

/// Returns the FLOPs of the product of a matrix [rows, k] and a matrix [k, columns]: 2 per
/// multiply-add. As an integer this may overflow for fairly large tensors.
inline double product_flops(const Shape& matrix, int64_t columns) {
  return 2.0 * static_cast<double>(matrix.elements()) * static_cast<double>(columns);
}

/// Returns the spec of a tensor without a distribution: a Tensor does not know it, and kernels need
/// only shapes and types.
inline Spec spec_of(const Tensor& tensor) { return {tensor.shape(), tensor.dtype(), {}}; }

inline std::vector<Spec> specs_of(std::span<const Tensor> tensors) {
  std::vector<Spec> specs;
  specs.reserve(tensors.size());
  for (const Tensor& tensor : tensors) specs.push_back(spec_of(tensor));
  return specs;
}

/// Returns whether the plain kernel is to run: on request, and always in f64.
inline bool use_plain(const Target& target, DType dtype) {
  return target.kernels == Kernels::plain || dtype == DType::f64;
}

/// Calls body(Vendor{}, T{}) for the vendor of the execution's stream, with T the type of the first
/// input: float or BFloat16. Throws InternalError for other types: nothing is computed in f64 on a
/// device.
template <typename Body>
void on_device(const Execution& execution, Body&& body) {
  for_vendor(*execution.stream, [&](auto vendor) {
    dispatch_device(execution.inputs[0].dtype(), [&](auto type) { body(vendor, type); });
  });
}

/// Runs an operation's kernel for floating tensors of type T, which `dtype` names. Calls
/// device(Vendor{}, arguments(T{})) on a device. On the processor calls plain(arguments(T{})) if
/// use_plain() returns true, and fast(arguments(T{})) otherwise.
template <typename Arguments, typename OnDevice, typename Plain, typename Fast>
void run_kernel(const Execution& execution, DType dtype, Arguments&& arguments, OnDevice&& device,
                Plain&& plain, Fast&& fast) {
  if (execution.stream != nullptr) {
    return for_vendor(*execution.stream, [&](auto vendor) {
      dispatch_device(dtype, [&](auto type) { device(vendor, arguments(type)); });
    });
  }
  dispatch_floating(dtype, [&](auto type) {
    if constexpr (!std::is_same_v<decltype(type), double>) {
      if (!use_plain(execution.runtime.target(), dtype)) return fast(arguments(type));
    }
    plain(arguments(type));
  });
}

}  // namespace tessera
