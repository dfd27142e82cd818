#include "ops/collective/wire_pieces.h"

#include "base/bfloat16.h"
#include "base/error.h"
#include "device/vendor.h"
#include "ops/elementwise/elementwise_kernels.h"
#include "ops/support.h"

namespace tessera {
namespace {

QuantisedFormat format_of(const Wire& wire) {
  TESSERA_CHECK(wire.is_quantised(), "the wire format {} has no blocks", word(wire.format));
  return {.type = wire.format == WireFormat::int8 ? QuantisedType::int8 : QuantisedType::int4,
          .block = wire.block};
}

/// Returns the elements of a piece in bf16.
Tensor bf16_of(const Tensor& piece, int64_t elements) {
  return Tensor::wrap(piece.address(), {elements}, DType::bf16, piece.accelerator());
}

/// Calls body(begin, end) for parts of `elements` elements, on the execution's threads.
template <typename Body>
void for_parts(const Execution& execution, int64_t elements, Body&& body) {
  constexpr int64_t kGrain = 1 << 15;  // elements that are worth another thread
  parallel_ranges(execution.threads(), elements, kGrain,
                  [&](int64_t begin, int64_t end, int) { body(begin, end); });
}

void require_f32(const Tensor& tensor) {
  TESSERA_CHECK(tensor.dtype() == DType::f32, "a {} for a piece of bf16; expected f32",
                dtype_name(tensor.dtype()));
}

/// Converts elements between f32 and bf16.
template <typename From, typename To>
void convert_elements(const Execution& execution, const Tensor& from, const Tensor& to) {
  const int64_t count = from.elements();
  if (execution.stream != nullptr) {
    return for_vendor(*execution.stream, [&]<typename Vendor>(Vendor) {
      map_device<Vendor>(ElementMap::copy, 0.0, from.pointer<From>(), to.pointer<To>(), count,
                         *execution.stream);
    });
  }
  const From* source = from.data<From>();
  To* target = to.data<To>();
  for_parts(execution, count, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) target[i] = To(static_cast<float>(source[i]));
  });
}

}  // namespace

bool is_rounded_by(const Wire& wire, DType dtype) {
  if (wire.format == WireFormat::fp32 || dtype == DType::f64) return false;
  return wire.is_quantised() || dtype == DType::f32;
}

int64_t wire_bytes(const Wire& wire, int64_t elements) {
  if (wire.format == WireFormat::bf16) return elements * dtype_size(DType::bf16);
  return quantised_bytes(format_of(wire), elements);
}

void to_wire(const Execution& execution, const Wire& wire, const Tensor& values,
             const Tensor& piece, const std::optional<ErrorFeedback>& feedback) {
  if (wire.is_quantised()) {
    if (!feedback) return quantise(execution, format_of(wire), values, piece);
    return quantise_with_feedback(execution, format_of(wire), values, *feedback, piece);
  }
  TESSERA_CHECK(!feedback, "errors are fed back to integers alone");
  require_f32(values);
  convert_elements<float, BFloat16>(execution, values, bf16_of(piece, values.elements()));
}

void from_wire(const Execution& execution, const Wire& wire, const Tensor& piece,
               const Tensor& values) {
  if (wire.is_quantised()) return dequantise(execution, format_of(wire), piece, values);
  require_f32(values);
  convert_elements<BFloat16, float>(execution, bf16_of(piece, values.elements()), values);
}

void add_from_wire(const Execution& execution, const Wire& wire, const Tensor& piece,
                   const Tensor& sums) {
  if (wire.is_quantised()) return dequantise_add(execution, format_of(wire), piece, sums);
  require_f32(sums);
  const Tensor addend = bf16_of(piece, sums.elements());
  if (execution.stream != nullptr) {
    return for_vendor(*execution.stream, [&]<typename Vendor>(Vendor) {
      accumulate_device<Vendor>(sums.pointer<float>(), addend.pointer<BFloat16>(), sums.elements(),
                                *execution.stream);
    });
  }
  const BFloat16* source = addend.data<BFloat16>();
  float* target = sums.data<float>();
  for_parts(execution, sums.elements(), [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) target[i] += static_cast<float>(source[i]);
  });
}

}  // namespace tessera
