#include <gtest/gtest.h>

#include "ops/attention/device_attention.h"

namespace tessera {
namespace {

TEST(AttentionSizes, TheLastBlocksRowsFitInto32Bits) {
  const AttentionShape most{
      .sequences = 1, .sequence = kMostRows, .keys = 1, .heads = 1, .kv_heads = 1, .head_dim = 8};
  EXPECT_EQ(kernel_sizes(most).sequence, kMostRows);
  AttentionShape more = most;
  ++more.sequence;
  EXPECT_THROW(kernel_sizes(more), InternalError);
  more = most;
  more.keys = int64_t{kMostRows} + 1;
  EXPECT_THROW(kernel_sizes(more), InternalError);
  more = most;
  more.heads = 2;
  EXPECT_THROW(kernel_sizes(more), InternalError);
  // A block has at most 1,024 threads, each with a row of its own.
  EXPECT_LE(int64_t{kMostRows} + 1024, std::numeric_limits<int>::max());
}

}  // namespace
}  // namespace tessera
