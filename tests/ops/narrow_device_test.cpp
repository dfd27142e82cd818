#include <string>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "ops/collective/narrow.h"
#include "support/emulated.h"

namespace tessera {
namespace {

using testing::Emulation;

/// The bytes of both ways: rounded to bf16 in its own memory, and back. `before` elements come
/// first in the memory.
std::string narrowed_and_widened(const Tensor& values, int64_t before,
                                 const std::optional<Emulation>& device) {
  const int64_t elements = values.elements();
  const auto bytes = [](const Tensor& tensor) {
    const Tensor host = on_host(tensor);
    return std::string(reinterpret_cast<const char*>(host.raw()),
                       static_cast<size_t>(host.bytes()));
  };
  if (!device) {
    const Tensor copy(values.shape(), DType::f32);
    copy.copy_from(values);
    const std::string narrow = bytes(narrow_in_place(copy));
    widen_in_place(copy);
    return narrow + bytes(copy);
  }
  Runtime runtime = testing::make_runtime(host_target(1), *device);
  Accelerator* const accelerator = runtime.accelerator();
  const auto stream = accelerator->make_stream();
  const auto memory = accelerator->allocate((elements + before) * dtype_size(DType::f32));
  const Tensor wide = Tensor::wrap(static_cast<float*>(memory->address()) + before, {elements},
                                   DType::f32, accelerator);
  upload({values.raw(), static_cast<size_t>(values.bytes())}, wide);
  const Tensor narrow = narrow_in_place(wide, stream.get());
  stream->synchronize();
  const std::string first = bytes(narrow);
  widen_in_place(wide, stream.get());
  stream->synchronize();
  return first + bytes(wide);
}

RC_GTEST_PROP(NarrowOnDevices, GivesTheProcessorsBits, ()) {
  const int64_t elements =
      *rc::gen::element<int64_t>(1, 5, 2047, 2048, 2049, 4096, 6000, 8195, 40'001);
  const int64_t before = *rc::gen::element<int64_t>(0, 1, 4);
  const Tensor values = testing::random_tensor({elements}, DType::f32, "values", 3);
  testing::expect_device_equals([&](const std::optional<Emulation>& device) {
    return narrowed_and_widened(values, before, device);
  });
}

}  // namespace
}  // namespace tessera
