#include "tensor/memory_pool.h"

#include <cstdint>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/address_limit.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(MemoryPool, GivesAlignedBlocksOfItsOwn) {
  MemoryPool pool(int64_t{1} << 20);
  const auto first = pool.allocate(100);
  const auto second = pool.allocate(100);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first->data()) % 64, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(second->data()) % 64, 0u);
  EXPECT_EQ(first->bytes(), 100);
  std::memset(first->data(), 1, 100);
  std::memset(second->data(), 2, 100);
  EXPECT_EQ(first->data()[99], std::byte{1});
}

TEST(MemoryPool, CountsWhatIsInUseAndThePeak) {
  MemoryPool pool(int64_t{1} << 20);
  auto first = pool.allocate(1024);
  const auto second = pool.allocate(512);
  EXPECT_EQ(pool.in_use(), 1536);
  first.reset();
  EXPECT_EQ(pool.in_use(), 512);
  EXPECT_EQ(pool.peak_in_use(), 1536);
  pool.reset_peak();
  EXPECT_EQ(pool.peak_in_use(), 512);
  EXPECT_EQ(pool.extent(), 1536);
}

TEST(MemoryPool, ReusesAddresses) {
  MemoryPool pool(int64_t{1} << 20);
  const std::byte* address = pool.allocate(4096)->data();
  EXPECT_EQ(pool.allocate(4096)->data(), address);
}

TEST(MemoryPool, ABufferOutlivesItsPool) {
  std::shared_ptr<Buffer> buffer;
  {
    MemoryPool pool(int64_t{1} << 20);
    buffer = pool.allocate(64);
  }
  std::memset(buffer->data(), 3, 64);
  EXPECT_EQ(buffer->data()[63], std::byte{3});
}

TEST(MemoryPool, SaysWhatDidNotFit) {
  MemoryPool pool(4096);
  const auto used = pool.allocate(3072);
  EXPECT_THAT(error_of([&] { pool.allocate(2048); }),
              AllOf(HasSubstr("out of memory: 2.0 KiB were asked for with 3.0 KiB in use of a pool "
                              "of 4.0 KiB"),
                    HasSubstr("train.micro_batch")));
  EXPECT_EQ(pool.in_use(), 3072);
  EXPECT_EQ(pool.peak_in_use(), 3072);
  EXPECT_EQ(pool.extent(), 3072);
  EXPECT_NO_THROW(pool.allocate(1024));
}

TEST(MemoryPool, ReservesTheMachinesMemoryByDefault) {
  MemoryPool pool;
  EXPECT_EQ(pool.in_use(), 0);
  EXPECT_NO_THROW(pool.allocate(int64_t{1} << 30));
}

TEST(MemoryPool, TakesNoMoreAddressesThanTheUsersLimitLeaves) {
  if (!AddressLimit::kWorks) GTEST_SKIP() << "the address sanitizer needs all addresses";
  const AddressLimit limit(int64_t{1} << 30);
  MemoryPool pool;
  EXPECT_NO_THROW(pool.allocate(int64_t{400} << 20));
  EXPECT_THAT(error_of([&] { pool.allocate(int64_t{800} << 20); }), HasSubstr("out of memory"));
  EXPECT_THAT(error_of([] { MemoryPool(int64_t{2} << 30); }), HasSubstr("ulimit -v"));
  EXPECT_NO_THROW(MemoryPool(int64_t{400} << 20)) << "beside the other";
}

}  // namespace
}  // namespace tessera
