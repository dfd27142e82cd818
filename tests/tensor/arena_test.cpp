#include "tensor/arena.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/address_limit.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Arena, BeginsAsZerosAndGivesTensorsWhereTheyAreAskedFor) {
  const Arena arena(4096);
  EXPECT_EQ(arena.bytes(), 4096);
  const Tensor whole = arena.at(0, {4096}, DType::u8);
  const auto bytes = whole.values<uint8_t>();
  EXPECT_TRUE(std::ranges::all_of(bytes, [](uint8_t byte) { return byte == 0; }));
  const Tensor part = arena.at(64, {4}, DType::f32);
  part.data<float>()[0] = 1.5F;
  EXPECT_EQ(static_cast<const void*>(part.raw()), whole.raw() + 64);
  EXPECT_EQ(arena.at(64, {2, 2}, DType::f32).data<float>()[0], 1.5F);
}

TEST(Arena, RefusesWhatLiesBeyondIt) {
  const Arena arena(100);
  EXPECT_NO_THROW(arena.at(36, {16}, DType::f32));
  EXPECT_THROW(arena.at(64, {16}, DType::f32), InternalError);
  EXPECT_THROW(arena.at(-64, {16}, DType::f32), InternalError);
  EXPECT_NO_THROW(Arena(0));
}

TEST(Arena, SaysWhyItDoesNotGetItsAddresses) {
  if (!AddressLimit::kWorks) GTEST_SKIP() << "the address sanitizer needs all addresses";
  const AddressLimit limit(int64_t{64} << 20);
  EXPECT_THAT(error_of([] { const Arena arena(int64_t{1} << 40); }),
              AllOf(HasSubstr("cannot reserve 1.0 TiB of addresses"), HasSubstr("ulimit -v")));
}

}  // namespace
}  // namespace tessera
