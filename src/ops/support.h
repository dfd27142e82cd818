#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "device/vendor.h"
#include "program/builder.h"
#include "tensor/dispatch.h"

// What most operations' implementations share: checks, sizes, the choice of a kernel.

/// Checks a condition on an operation's operands. Throws InternalError, which names the operation.
#define TESSERA_EXPECT(operation, condition, ...) \
  TESSERA_CHECK(condition, "{}: {}", (operation).name(), ::fmt::format(__VA_ARGS__))

namespace tessera {

/// Returns the number of rows of `columns` elements, about 16 Ki elements in all, whose vectorised
/// work is worth a thread's start.
inline int64_t row_grain(int64_t columns) {
  return std::max<int64_t>(1, 16384 / std::max<int64_t>(columns, 1));
}

/// Returns the FLOPs of the product of a matrix [rows, k] and a matrix [k, columns]: 2 per
/// multiply-add. A double, because large products exceed 64-bit integers.
inline double product_flops(const Shape& matrix, int64_t columns) {
  return 2.0 * static_cast<double>(matrix.elements()) * static_cast<double>(columns);
}

/// Returns a tensor's spec, without a distribution: a Tensor does not know its distribution, and
/// kernels need only shapes and types.
inline Spec spec_of(const Tensor& tensor) { return {tensor.shape(), tensor.dtype(), {}}; }

/// Returns whether two tensors have the same shape and dtype, whatever their distributions.
inline bool is_like(const Spec& a, const Spec& b) {
  return a.shape == b.shape && a.dtype == b.dtype;
}

/// Returns a tensor's dtype and shape for messages: "bf16 [4, 16]".
inline std::string text_of(const Spec& spec) {
  return fmt::format("{} {}", dtype_name(spec.dtype), spec.shape.text());
}

/// Returns spec_of() of each tensor.
inline std::vector<Spec> specs_of(std::span<const Tensor> tensors) {
  std::vector<Spec> specs;
  specs.reserve(tensors.size());
  for (const Tensor& tensor : tensors) specs.push_back(spec_of(tensor));
  return specs;
}

/// Copies a tensor to another of the same shape and dtype, in the order of the operation's work.
inline void copy(const Execution& execution, const Tensor& from, const Tensor& to) {
  if (execution.stream == nullptr) return to.copy_from(from);
  execution.stream->copy(to.address(), from.address(), from.bytes());
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

/// Runs an operation's kernel on the processor, for tensors of the floating type T that `dtype`
/// names: plain(arguments(T{})) if use_plain() returns true, and fast(arguments(T{})) otherwise.
template <typename Arguments, typename Plain, typename Fast>
void run_processor_kernel(const Execution& execution, DType dtype, Arguments&& arguments,
                          Plain&& plain, Fast&& fast) {
  dispatch_floating(dtype, [&](auto type) {
    if constexpr (!std::is_same_v<decltype(type), double>) {
      if (!use_plain(execution.runtime.target(), dtype)) return fast(arguments(type));
    }
    plain(arguments(type));
  });
}

/// Runs device(Vendor{}, arguments(T{})) on a device, and run_processor_kernel() on the processor.
template <typename Arguments, typename OnDevice, typename Plain, typename Fast>
void run_kernel(const Execution& execution, DType dtype, Arguments&& arguments, OnDevice&& device,
                Plain&& plain, Fast&& fast) {
  if (execution.stream != nullptr) {
    return for_vendor(*execution.stream, [&](auto vendor) {
      dispatch_device(dtype, [&](auto type) { device(vendor, arguments(type)); });
    });
  }
  run_processor_kernel(execution, dtype, arguments, plain, fast);
}

/// Runs an operation on f32 or f64, as `dtype` says: device(Vendor{}, arguments(float{})) on a
/// device, and kernel(arguments(T{})) on the processor.
template <typename Arguments, typename OnDevice, typename Kernel>
void run_wide_kernel(const Execution& execution, DType dtype, Arguments&& arguments,
                     OnDevice&& device, Kernel&& kernel) {
  if (execution.stream == nullptr) {
    return dispatch_wide(dtype, [&](auto type) { kernel(arguments(type)); });
  }
  for_vendor(*execution.stream, [&](auto vendor) { device(vendor, arguments(float{})); });
}

/// Calls body(item) for each item of [0, count) on several threads, each of which gets at least
/// `grain` items. See parallel_ranges().
template <typename Body>
void parallel_each(int threads, int64_t count, int64_t grain, Body&& body) {
  parallel_ranges(threads, count, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t item = begin; item < end; ++item) body(item);
  });
}

/// Rows [begin, end) that are processed in chunks of `chunk` rows, which divide them evenly.
struct RowSection {
  int64_t begin;
  int64_t end;
  int64_t chunk;
};

/// Divides rows [0, rows) into chunks of at most `chunk` rows; `chunk` is at least 1. Returns up to
/// two sections, none for no rows: the whole chunks, and one shorter chunk of the rest. All chunks
/// of a section have one shape, so a product is prepared once for each section.
inline std::vector<RowSection> row_sections(int64_t rows, int64_t chunk) {
  const int64_t whole = rows / chunk * chunk;
  std::vector<RowSection> sections;
  if (whole > 0) sections.push_back({0, whole, chunk});
  if (whole < rows) sections.push_back({whole, rows, rows - whole});
  return sections;
}

/// Checks that all of a tensor's i32 indices are in [least, extent). Otherwise throws Error, which
/// names the node, the bounds, the first wrong index and its token; `what` is the word for it:
/// "id", "target". The bounds are those of the whole tensor.
void require_indices(const Execution& execution, std::string_view what, const Tensor& indices,
                     int64_t least, int64_t extent);

/// Returns the first row that the program's rank holds, as an index in the whole value; 0 if dim 0
/// is whole or the rank has no rows. Throws Error if the rows have gaps (zigzag).
int64_t first_row(const Program& program, Value value);

/// Enqueues a run of an operation on the stream of the emulated device, with the processor's
/// kernels. It serves operations that GPUs leave to vendor libraries: attention and grouped
/// products. Throws InternalError on any other device. The operation must outlive the run.
void run_by_processor(const Operation& operation, const Execution& execution);

}  // namespace tessera
