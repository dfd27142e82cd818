#include "tensor/tensor.h"

#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "device/emulated_accelerator.h"
#include "tensor/dispatch.h"

namespace tessera {
namespace {

TEST(Shape, KnowsItsDims) {
  const Shape shape{2, 3, 4};
  EXPECT_EQ(shape.rank(), 3);
  EXPECT_EQ(shape[0], 2);
  EXPECT_EQ(shape.dim(-1), 4);
  EXPECT_EQ(shape.elements(), 24);
  EXPECT_EQ(shape.rows(), 6);
  EXPECT_EQ(shape.text(), "[2, 3, 4]");
  EXPECT_EQ(shape.with_dim(-1, 7), (Shape{2, 3, 7}));
  EXPECT_FALSE(shape == (Shape{2, 3}));
  EXPECT_EQ(Shape({0, 5}).elements(), 0);
}

TEST(Shape, RefusesWhatIsNone) {
  EXPECT_THROW(Shape({1, 2, 3, 4, 5, 6}), InternalError);
  EXPECT_THROW(Shape({-1}), InternalError);
  EXPECT_THROW(Shape({2}).dim(1), InternalError);
  EXPECT_THROW(Shape({2}).dim(-2), InternalError);
  EXPECT_THROW(Shape({2}).with_dim(1, 3), InternalError);
}

TEST(Tensor, HasAlignedMemoryOfItsOwn) {
  for (const int64_t elements : {1, 100, 1 << 20}) {
    const Tensor tensor({elements}, DType::f32);
    EXPECT_TRUE(tensor.defined());
    EXPECT_EQ(tensor.bytes(), 4 * elements);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.raw()) % 64, 0U);
    tensor.fill_zero();
    EXPECT_EQ(tensor.data<float>()[elements - 1], 0);
  }
  EXPECT_TRUE(Tensor({0}, DType::f32).defined());
  EXPECT_FALSE(Tensor().defined());
}

TEST(Tensor, AViewKeepsTheMemory) {
  Tensor view;
  {
    const Tensor tensor({8}, DType::i32);
    for (int i = 0; i < 8; ++i) tensor.data<int32_t>()[i] = i;
    view = tensor.slice(6, 8);
  }
  EXPECT_EQ(view.values<int32_t>()[1], 7);
}

TEST(Tensor, TheHostDoesNotTouchADevicesMemory) {
  const auto accelerator = open_emulated();
  const auto memory = accelerator->allocate(6 * sizeof(float));
  const Tensor device = Tensor::wrap(memory->address(), {6}, DType::f32, accelerator.get());
  const Tensor host({6}, DType::f32);
  EXPECT_EQ(device.device(), Device::emulated);
  EXPECT_EQ(device.slice(1, 2).device(), Device::emulated);
  EXPECT_THROW(device.data<float>(), InternalError);
  EXPECT_THROW(device.values<float>(), InternalError);
  EXPECT_THROW(device.raw(), InternalError);
  EXPECT_THROW(device.fill_zero(), InternalError);
  EXPECT_THROW(device.copy_from(host), InternalError);
  EXPECT_THROW(host.copy_from(device), InternalError);
  EXPECT_THROW(convert(device, host), InternalError);
  EXPECT_THROW(sum(device), InternalError);
  EXPECT_EQ(device.address(), memory->address());

  const std::vector<float> numbers{1, 2, 3, 4, 5, 6};
  upload(std::as_bytes(std::span(numbers)), device);
  std::vector<float> back(6);
  readback(device, std::as_writable_bytes(std::span(back)));
  EXPECT_EQ(back, numbers);
  EXPECT_THROW(upload(std::as_bytes(std::span(numbers).first(5)), device), InternalError);
  EXPECT_THROW(readback(device, std::as_writable_bytes(std::span(back).first(5))), InternalError);
}

/// An empty vector's address may be null, which memcpy() must not be given.
TEST(DeviceTensor, WithoutElementsIsCopiedFromAndToEmptyMemory) {
  const auto accelerator = open_emulated();
  const auto memory = accelerator->allocate(16);
  const Tensor device = Tensor::wrap(memory->address(), {0, 3}, DType::f32, accelerator.get());
  for (const Tensor& tensor : {device, Tensor({0, 3}, DType::f32)}) {
    upload({}, tensor);
    readback(tensor, {});
    EXPECT_EQ(on_host(tensor).shape(), tensor.shape());
  }
}

TEST(Tensor, ViewsShowTheSameElements) {
  std::vector<float> numbers(24);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
  const Tensor tensor = Tensor::wrap(numbers.data(), {4, 2, 3}, DType::f32);
  EXPECT_EQ(tensor.reshape({8, 3}).data<float>(), numbers.data());
  const Tensor rows = tensor.slice(1, 3);
  EXPECT_EQ(rows.shape(), (Shape{2, 2, 3}));
  EXPECT_EQ(rows.values<float>()[0], 6);
  const Tensor part = tensor.view(5, {2, 2});
  EXPECT_EQ(part.values<float>()[3], 8);
  part.data<float>()[0] = -1;
  EXPECT_EQ(numbers[5], -1);
  EXPECT_EQ(tensor.slice(4, 4).elements(), 0);
}

TEST(Tensor, RefusesViewsPastItsEndAndOtherTypes) {
  std::vector<float> numbers(6);
  const Tensor tensor = Tensor::wrap(numbers.data(), {2, 3}, DType::f32);
  EXPECT_THROW(tensor.reshape({5}), InternalError);
  EXPECT_THROW(tensor.slice(1, 3), InternalError);
  EXPECT_THROW(tensor.slice(1, 0), InternalError);
  EXPECT_THROW(tensor.view(3, {4}), InternalError);
  EXPECT_THROW(tensor.data<double>(), InternalError);
}

TEST(Tensor, CopiesAndClears) {
  const Tensor from({3}, DType::u16);
  const Tensor to({3}, DType::u16);
  for (int i = 0; i < 3; ++i) from.data<uint16_t>()[i] = static_cast<uint16_t>(i + 1);
  to.copy_from(from);
  EXPECT_EQ(to.values<uint16_t>()[2], 3);
  to.fill_zero();
  EXPECT_EQ(to.values<uint16_t>()[2], 0);
  EXPECT_EQ(from.values<uint16_t>()[2], 3);
  EXPECT_THROW(to.copy_from(Tensor({4}, DType::u16)), InternalError);
  EXPECT_THROW(to.copy_from(Tensor({3}, DType::i32)), InternalError);
}

TEST(Convert, RoundsOnceToTheNarrowerType) {
  const Tensor wide({3}, DType::f64);
  const Tensor narrow({3}, DType::bf16);
  const Tensor middle({3}, DType::f32);
  const double values[] = {1.0 / 3, -2.5, std::numeric_limits<double>::infinity()};
  std::ranges::copy(values, wide.data<double>());
  convert(wide, narrow);
  convert(wide, middle);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(middle.data<float>()[i], static_cast<float>(values[i]));
    EXPECT_EQ(narrow.data<BFloat16>()[i].bits, BFloat16(static_cast<float>(values[i])).bits);
  }
  convert(narrow, wide);
  EXPECT_EQ(wide.data<double>()[1], -2.5);
  EXPECT_THROW(convert(wide, Tensor({2}, DType::f32)), InternalError);
  EXPECT_THROW(convert(wide, Tensor({3}, DType::i32)), InternalError);
}

TEST(Dispatch, CallsWithTheTypesOfEachDType) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    dispatch_floating(dtype, [&](auto zero) { EXPECT_EQ(dtype_of<decltype(zero)>, dtype); });
  }
  EXPECT_THROW(dispatch_floating(DType::u8, [](auto) {}), InternalError);
  EXPECT_THROW(dispatch_wide(DType::bf16, [](auto) {}), InternalError);
}

}  // namespace
}  // namespace tessera
