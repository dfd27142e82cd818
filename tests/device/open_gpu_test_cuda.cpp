#include <cstring>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/open_gpu.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

bool has_gpu() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

TEST(Cuda, SaysWhatIsMissingWhereThereIsNoGpu) {
  if (has_gpu()) GTEST_SKIP() << "there is a GPU";
  EXPECT_THAT(error_of([] { open_accelerator(Device::cuda); }),
              AnyOf(HasSubstr("needs NVIDIA's driver"), HasSubstr("needs a driver that supports"),
                    HasSubstr("the driver finds no GPU")));
}

/// What needs a GPU.
class CudaDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "there is no GPU";
    accelerator = open_cuda({});
  }
  std::vector<int> read(const DeviceMemory& memory, size_t count) const {
    std::vector<int> values(count);
    accelerator->readback(memory.address(), std::as_writable_bytes(std::span(values)));
    return values;
  }
  std::unique_ptr<Accelerator> accelerator;
};

TEST_F(CudaDevice, MemoryBeginsAsZerosAndIsCopied) {
  constexpr size_t kCount = 1 << 20;
  std::vector<int> values(kCount);
  for (size_t i = 0; i < kCount; ++i) values[i] = static_cast<int>(i * 2654435761U);
  for (int round = 0; round < 2; ++round) {  // the second time the memory has been used
    const auto memory = accelerator->allocate(kCount * sizeof(int));
    EXPECT_EQ(read(*memory, kCount), std::vector<int>(kCount, 0));
    accelerator->upload(std::as_bytes(std::span(values)), memory->address());
    EXPECT_EQ(read(*memory, kCount), values);
  }
}

TEST_F(CudaDevice, MoreMemoryThanIsFreeIsRefused) {
  const int64_t much = 2 * accelerator->free_bytes();
  EXPECT_THAT(error_of([&] { accelerator->allocate(much); }), HasSubstr("are free"));
  EXPECT_NO_THROW(accelerator->synchronize()) << "the error is over";
}

TEST_F(CudaDevice, StreamsCopyThroughPinnedMemoryInTheOrderOfEvents) {
  const auto first = accelerator->make_stream(), second = accelerator->make_stream(Priority::high);
  const auto begin = accelerator->make_event(), end = accelerator->make_event();
  const auto memory = accelerator->allocate(12);
  const auto host = accelerator->allocate_host(12);
  auto* const values = static_cast<int*>(host->address());
  for (int i = 0; i < 3; ++i) values[i] = i + 5;
  first->record(*begin);
  first->copy(memory->address(), values, 12);
  first->record(*end);
  second->wait(*end);
  second->fill_zero(memory->address(), 8);
  second->copy(values, memory->address(), 12);
  second->synchronize();
  EXPECT_EQ(std::vector<int>(values, values + 3), (std::vector<int>{0, 0, 7}));
  EXPECT_TRUE(end->reached());
  EXPECT_GE(end->seconds_since(*begin), 0);
}

TEST_F(CudaDevice, AGraphIsDoneEachTimeItIsLaunchedAndTakesTwoStreamsIn) {
  const auto first = accelerator->make_stream(), second = accelerator->make_stream(Priority::high);
  const auto begun = accelerator->make_event(), done = accelerator->make_event();
  const auto memory = accelerator->allocate(8);
  const auto host = accelerator->allocate_host(8);
  auto* const values = static_cast<int*>(host->address());
  values[0] = 3;
  first->begin_capture();
  first->record(*begun);
  second->wait(*begun);
  second->copy(memory->address(), values, 4);
  second->record(*done);
  first->wait(*done);
  first->copy(values + 1, memory->address(), 4);
  auto graph = first->end_capture();
  first->synchronize();
  EXPECT_EQ(values[1], 0) << "it was only captured";
  for (const int value : {4, 9}) {
    values[0] = value;
    first->launch(*graph);
    first->synchronize();
    EXPECT_EQ(values[1], value);
  }
  first->launch(*graph);
  graph.reset();
  EXPECT_NO_THROW(accelerator->synchronize());
}

}  // namespace
}  // namespace tessera
