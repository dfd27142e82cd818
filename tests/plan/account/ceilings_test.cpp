#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hardware/hardware_file.h"
#include "plan/account/step_account.h"
#include "support/error_of.h"
#include "support/sample_trace.h"
#include "support/temporary_folder.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CeilingsTest : public ::testing::Test {
 protected:
  CeilingsTest() : origin_(testing::sample_step().origin) {
    hardware_.processor = {
        .name = origin_.processor, .features = origin_.features, .threads = origin_.threads};
    const auto square = [](DType dtype, double rate) {
      return GemmRate{
          .dtype = dtype, .m = 2048, .n = 2048, .k = 2048, .best = rate, .median = rate};
    };
    const auto loop = [](MemoryKernel kernel, int64_t bytes, double rate) {
      return MemoryRate{.kernel = kernel, .bytes = bytes, .best = rate, .median = rate};
    };
    hardware_.gemms = {square(DType::bf16, 3e12), square(DType::f32, 1e11)};
    hardware_.memory = {loop(MemoryKernel::copy, 1 << 30, 3e10),
                        loop(MemoryKernel::update, 1 << 30, 4e10),
                        loop(MemoryKernel::triad, 1 << 15, 9e11)};
  }
  Ceilings find(CeilingSources sources = {}) {
    sources.hardware = folder_.write("hardware.json", hardware_json(hardware_));
    return find_ceilings(origin_, sources);
  }

  TemporaryFolder folder_;
  TraceOrigin origin_;
  Hardware hardware_;
};

TEST_F(CeilingsTest, TheRunsPeakWithoutAFile) {
  const Ceilings ceilings = find_ceilings(origin_, {});
  EXPECT_EQ(ceilings.gemm_flops, 1e12);
  EXPECT_EQ(ceilings.gemm_source, "the run's");
  EXPECT_EQ(ceilings.memory_bytes, 0);
}

TEST_F(CeilingsTest, TheFileGivesBothInTheRunsPrecision) {
  const Ceilings ceilings = find();
  EXPECT_EQ(ceilings.gemm_flops, 3e12);
  EXPECT_EQ(ceilings.memory_bytes, 4e10);
  EXPECT_THAT(ceilings.gemm_source, HasSubstr("hardware.json"));
  origin_.precision = Precision::fp32;
  EXPECT_EQ(find().gemm_flops, 1e11);
}

TEST_F(CeilingsTest, WhatTheUserSaysComesFirst) {
  const Ceilings ceilings = find({.gemm_flops = 7e12, .memory_bytes = 8e10});
  EXPECT_EQ(ceilings.gemm_flops, 7e12);
  EXPECT_EQ(ceilings.memory_bytes, 8e10);
  EXPECT_EQ(ceilings.memory_source, "--memory-bandwidth");
}

TEST_F(CeilingsTest, AFileOfHalfTheMeasurementsGivesThatHalf) {
  hardware_.memory.clear();
  EXPECT_EQ(find().gemm_flops, 3e12);
  EXPECT_EQ(find().memory_bytes, 0);
}

TEST_F(CeilingsTest, RefusesTheBandwidthOfAnOlderFile) {
  std::erase_if(hardware_.memory,
                [](const MemoryRate& rate) { return rate.kernel == MemoryKernel::update; });
  EXPECT_THAT(error_of([&] { find(); }),
              AllOf(HasSubstr("hardware.json: the hardware file has no bandwidth of the loop"),
                    HasSubstr("--memory-bandwidth")));
  EXPECT_EQ(find({.memory_bytes = 8e10}).gemm_flops, 3e12);
}

TEST_F(CeilingsTest, RefusesAFileOfAnotherMachine) {
  const auto error = [&](const Processor& processor) {
    hardware_.processor = processor;
    return error_of([&] { find(); });
  };
  const Processor there = hardware_.processor;
  EXPECT_THAT(error({.name = there.name, .features = there.features, .threads = 64}),
              HasSubstr("64 threads (avx2 amx_bf16), the trace comes from"));
  EXPECT_THAT(error({.name = "Zuse Z3", .features = there.features, .threads = there.threads}),
              HasSubstr("was measured on Zuse Z3"));
  // Virtual machines call several generations by one name.
  EXPECT_THAT(error({.name = there.name, .features = {"avx2"}, .threads = there.threads}),
              HasSubstr("2 threads (avx2), the trace comes from"));
}

TEST_F(CeilingsTest, OfADeviceComeFromAFileAboutIt) {
  const auto device = [](const char* name) {
    return AcceleratorFacts{.name = name,
                            .device = Device::emulated,
                            .architecture = "emulated",
                            .lanes = {32, Origin::driver},
                            .multiprocessors = {1, Origin::driver},
                            .memory_bytes = {1 << 30, Origin::driver}};
  };
  hardware_.accelerator = device("some device");
  // The file has this processor beside the device, but its rates are not the processor's.
  EXPECT_THAT(error_of([&] { find(); }),
              HasSubstr("was measured on some device, the trace comes from"));
  origin_.device = Device::emulated;
  origin_.accelerator = "some device";
  EXPECT_EQ(find().gemm_flops, 3e12);
  hardware_.accelerator = device("another device");
  EXPECT_THAT(error_of([&] { find(); }),
              AllOf(HasSubstr("is about another device, the trace comes from some device"),
                    HasSubstr("bench all --device emulated")));
  hardware_.accelerator.reset();
  EXPECT_THAT(error_of([&] { find(); }), HasSubstr("the trace comes from some device"));
}

TEST_F(CeilingsTest, WhatTheUserSaysNeedsNoFile) {
  hardware_.gemms = {hardware_.gemms[0]};  // bf16
  origin_.precision = Precision::fp32;
  EXPECT_THAT(error_of([&] { find(); }),
              AllOf(HasSubstr("hardware.json has no square matrix product in fp32"),
                    HasSubstr("--gemm-peak"), Not(HasSubstr("run.hardware"))));
  const Ceilings ceilings = find({.gemm_flops = 7e12});
  EXPECT_EQ(ceilings.gemm_source, "--gemm-peak");
  EXPECT_EQ(ceilings.memory_bytes, 4e10);
  hardware_.processor.threads = 64;
  EXPECT_THAT(error_of([&] { find({.gemm_flops = 7e12}); }), HasSubstr("64 threads"));
  EXPECT_EQ(find({.gemm_flops = 7e12, .memory_bytes = 8e10}).memory_bytes, 8e10);
}

TEST_F(CeilingsTest, ThePeakMeasuredNowCountsWhereItIsHigher) {
  origin_.precision = Precision::fp32;
  origin_.threads = 1;
  origin_.gemm_peak = 1;
  const Ceilings higher = find_ceilings(origin_, {.measure = true});
  EXPECT_GT(higher.gemm_flops, 1e6);
  EXPECT_EQ(higher.gemm_source, "measured now, above the run's");
  origin_.gemm_peak = 1e29;
  const Ceilings lower = find_ceilings(origin_, {.measure = true});
  EXPECT_EQ(lower.gemm_flops, 1e29);
  EXPECT_EQ(lower.gemm_source, "the run's");
  EXPECT_EQ(find_ceilings(origin_, {.gemm_flops = 2, .measure = true}).gemm_flops, 2);
}

}  // namespace
}  // namespace tessera
