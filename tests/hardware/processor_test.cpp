#include "hardware/processor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Processor, IsReadFromTheSystemsText) {
  const Processor x86 = processor_from_cpuinfo(
      "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Xeon(R) 8480\n"
      "flags\t\t: fpu avx512f amx_tile avx2 avx512_bf16 avx512fantasy\n\n"
      "processor\t: 1\nmodel name\t: Another\nflags\t\t: fpu amx_bf16\n",
      2);
  EXPECT_EQ(x86.name, "Intel(R) Xeon(R) 8480");
  EXPECT_THAT(x86.features, ElementsAre("avx2", "avx512f", "avx512_bf16", "amx_tile"));
  EXPECT_EQ(x86.threads, 2);
  EXPECT_EQ(describe(x86), "Intel(R) Xeon(R) 8480, 2 threads (avx2 avx512f avx512_bf16 amx_tile)");

  const Processor cloud = processor_from_cpuinfo(
      "cpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n\nmodel name\t: Another\n", 2);
  EXPECT_EQ(cloud.name, "AMD EPYC (family 25, model 17)");

  const Processor arm = processor_from_cpuinfo("Features\t: fp asimd sve bf16\n", 1);
  EXPECT_EQ(arm.name, "unknown");
  EXPECT_THAT(arm.features, ElementsAre("asimd", "bf16", "sve"));
  EXPECT_THAT(processor_from_cpuinfo("", 1).features, IsEmpty());
}

TEST(Processor, OfArmIsNamedByItsNumbers) {
  // AWS Graviton2.
  const Processor arm = processor_from_cpuinfo(
      "processor\t: 0\nBogoMIPS\t: 243.75\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\n"
      "CPU architecture: 8\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\nCPU revision\t: 1\n\n",
      1);
  EXPECT_EQ(arm.name, "CPU implementer 0x41, part 0xd0c, variant 0x3");
  EXPECT_EQ(processor_from_cpuinfo("model name\t: Neoverse-N1\nCPU part\t: 0xd0c\n", 1).name,
            "Neoverse-N1");
}

TEST(Processor, ThisOneIsTheSameEveryTime) {
  const Processor here = this_processor(3);
  EXPECT_EQ(here, this_processor(3));
  EXPECT_FALSE(here.name.empty());
  EXPECT_GE(here.last_level_cache, here.second_level_cache);
}

}  // namespace
}  // namespace tessera
