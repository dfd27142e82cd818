#include "ops/loss/logit_chunks.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(LogitChunks, TheProcessorsHaveFrom256To1024Tokens) {
  EXPECT_EQ(logit_chunk(Device::cpu, 100000, 8192), 1024);
  EXPECT_EQ(logit_chunk(Device::cpu, 100000, 50304), 640);
  EXPECT_EQ(logit_chunk(Device::cpu, 100000, 200000), 256);
  EXPECT_EQ(logit_chunk(Device::cpu, 100, 200000), 100);
  EXPECT_EQ(logit_chunk(Device::cpu, 0, 200000), 1);
}

TEST(LogitChunks, DevicesHaveFrom2048To8192Tokens) {
  for (const Device device : {Device::emulated, Device::cuda, Device::hip}) {
    EXPECT_EQ(logit_chunk(device, 1 << 20, 8192), 8192);
    EXPECT_EQ(logit_chunk(device, 1 << 20, 1 << 20), 2048);
    EXPECT_EQ(logit_chunk(device, 4096, 128256), 2048);
    EXPECT_EQ(logit_chunk(device, 16384, 50304), 4096) << "not 5312, which would leave 448";
    EXPECT_EQ(logit_chunk(device, 100, 128256), 100);
    EXPECT_EQ(logit_chunk(device, 0, 128256), 1);
    for (int64_t tokens = 1; tokens < 20000; tokens += 7) {
      const int64_t chunk = logit_chunk(device, tokens, 32000);
      EXPECT_TRUE(chunk <= 8192 && (chunk == tokens || chunk % 64 == 0)) << tokens;
      EXPECT_EQ((tokens + chunk - 1) / chunk, (tokens + 8191) / 8192) << tokens;
    }
  }
}

TEST(LogitChunks, ThePlannedMemoryHasADevicesChunk) {
  const Spec x{{6000, 8}, DType::bf16, {}}, weight{{262144, 8}, DType::bf16, {}};
  const auto bytes = [&](Device device) {
    return LogitChunks(x, weight).workspace_bytes({.device = device}, false);
  };
  EXPECT_EQ(bytes(Device::emulated), int64_t{2048} * 262144 * 4);
}

}  // namespace
}  // namespace tessera
