#include <cstdlib>

#include <gtest/gtest.h>

#include "hardware/processor.h"
#include "ops/host_target.h"

namespace tessera {
namespace {

TEST(TargetOfProcessor, OfThisMachineIsTheHosts) {
  const Target host = host_target(3);
  if (host.instructions == MatrixInstructions::none) GTEST_SKIP() << "built without oneDNN";
  if (std::getenv("ONEDNN_MAX_CPU_ISA") != nullptr || std::getenv("DNNL_MAX_CPU_ISA") != nullptr) {
    GTEST_SKIP() << "oneDNN is told to use less than the processor has";
  }
  EXPECT_EQ(target_of(this_processor(3)), host);
}

TEST(TargetOfProcessor, HasTheInstructionsOfItsGeneration) {
  const auto instructions = [](std::vector<std::string> features) {
    return target_of({.name = "some", .features = std::move(features)}).instructions;
  };
  const std::vector<std::string> haswell{"avx2", "fma"};
  const std::vector<std::string> knights_landing{"avx2", "fma", "avx512f"};
  const std::vector<std::string> skylake{"avx2", "fma", "avx512f", "avx512bw"};
  const std::vector<std::string> zen4{"avx2",     "fma",         "avx512f",
                                      "avx512bw", "avx512_vnni", "avx512_bf16"};
  const std::vector<std::string> sapphire_rapids{
      "avx2",        "fma",         "avx_vnni", "avx512f",  "avx512bw", "avx512_vnni",
      "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16"};
  EXPECT_EQ(instructions(haswell), MatrixInstructions::avx2);
  EXPECT_EQ(instructions(knights_landing), MatrixInstructions::avx2);
  EXPECT_EQ(instructions(skylake), MatrixInstructions::avx512);
  EXPECT_EQ(instructions(zen4), MatrixInstructions::avx512_bf16);
  EXPECT_EQ(instructions(sapphire_rapids), MatrixInstructions::amx);
  EXPECT_EQ(instructions({"asimd", "bf16"}), MatrixInstructions::avx2);
}

TEST(TargetOfProcessor, WithoutItsAmxMultipliesFloatsFaster) {
  const std::vector<std::string> features{"avx2",     "fma",         "avx_vnni",    "avx512f",
                                          "avx512bw", "avx512_vnni", "avx512_bf16", "avx512_fp16"};
  const auto instructions = [&](const std::string& name) {
    return target_of({.name = name, .features = features}).instructions;
  };
  EXPECT_EQ(instructions("Intel(R) Xeon(R) Processor (family 6, model 207)"),
            MatrixInstructions::avx512);
  EXPECT_EQ(instructions("AMD EPYC (family 26, model 2)"), MatrixInstructions::avx512_bf16);
  std::vector<std::string> cooper_lake = features;
  cooper_lake.pop_back();  // has no AMX that a virtual machine could hide
  EXPECT_EQ(target_of({.name = "Intel(R) Xeon(R) Processor (family 6, model 85)",
                       .features = cooper_lake})
                .instructions,
            MatrixInstructions::avx512_bf16);
}

TEST(TargetOfProcessor, HasItsCachesAndThreads) {
  const Target target = target_of({.name = "some",
                                   .features = {},
                                   .first_level_cache = 1,
                                   .second_level_cache = 2,
                                   .last_level_cache = 3,
                                   .threads = 64});
  EXPECT_EQ(target.threads, 64);
  EXPECT_EQ(target.caches, (CacheSizes{.first_level = 1, .second_level = 2, .last_level = 3}));
  EXPECT_EQ(target.device, Device::cpu);
}

}  // namespace
}  // namespace tessera
