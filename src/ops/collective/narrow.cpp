#include "ops/collective/narrow.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/bfloat16.h"
#include "base/error.h"
#include "device/vendor.h"
#include "ops/collective/narrow_kernels.h"

namespace tessera {
namespace {

/// The number of elements that convert_block() reads before it writes any.
constexpr int64_t kBlock = 1024;

/// Converts elements [begin, end) of a tensor in its own memory. They are read to the stack first,
/// because a converted element may overwrite one that is not converted yet.
template <typename From, typename To>
void convert_block(const Tensor& memory, int64_t begin, int64_t end) {
  const auto count = static_cast<size_t>(end - begin);
  std::array<From, kBlock> read;
  std::array<To, kBlock> written;
  std::memcpy(read.data(), memory.raw() + begin * int64_t{sizeof(From)}, count * sizeof(From));
  for (size_t i = 0; i < count; ++i) written[i] = To(static_cast<float>(read[i]));
  std::memcpy(memory.raw() + begin * int64_t{sizeof(To)}, written.data(), count * sizeof(To));
}

}  // namespace

Tensor narrow_in_place(const Tensor& wide, Stream* stream) {
  TESSERA_CHECK(wide.dtype() == DType::f32, "a {} is narrowed; expected f32",
                dtype_name(wide.dtype()));
  const int64_t elements = wide.elements();
  if (stream != nullptr) {
    for_vendor(*stream, [&]<typename Vendor>(Vendor) {
      narrow_device<Vendor>(wide.address(), elements, *stream);
    });
  } else {
    for (int64_t begin = 0; begin < elements; begin += kBlock) {
      convert_block<float, BFloat16>(wide, begin, std::min(elements, begin + kBlock));
    }
  }
  return Tensor::wrap(wide.address(), {elements}, DType::bf16, wide.accelerator());
}

void widen_in_place(const Tensor& wide, Stream* stream) {
  if (stream != nullptr) {
    return for_vendor(*stream, [&]<typename Vendor>(Vendor) {
      widen_device<Vendor>(wide.address(), wide.elements(), *stream);
    });
  }
  // From the last block to the first: a widened block overwrites narrow elements of later blocks.
  for (int64_t end = wide.elements(); end > 0;) {
    const int64_t begin = (end - 1) / kBlock * kBlock;
    convert_block<BFloat16, float>(wide, begin, end);
    end = begin;
  }
}

}  // namespace tessera
