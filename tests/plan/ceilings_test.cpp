#include "plan/ceilings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hardware/hardware_file.h"
#include "support/error_of.h"
#include "support/sample_trace.h"
#include "support/temporary_folder.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

class CeilingsTest : public ::testing::Test {
 protected:
  CeilingsTest() : origin_(testing::sample_trace().origin) {
    hardware_.processor = {.name = origin_.processor, .threads = origin_.threads};
    const auto square = [](DType dtype, double rate) {
      return GemmRate{
          .dtype = dtype, .m = 2048, .n = 2048, .k = 2048, .best = rate, .median = rate};
    };
    const auto loop = [](MemoryKernel kernel, int64_t bytes, double rate) {
      return MemoryRate{.kernel = kernel, .bytes = bytes, .best = rate, .median = rate};
    };
    hardware_.gemms = {square(DType::bf16, 3e12), square(DType::f32, 1e11)};
    hardware_.memory = {loop(MemoryKernel::copy, 1 << 30, 5e10),
                        loop(MemoryKernel::triad, 1 << 30, 4e10),
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
  origin_.precision = "fp32";
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

TEST_F(CeilingsTest, RefusesAFileOfAnotherMachine) {
  hardware_.processor.threads = 64;
  EXPECT_THAT(error_of([&] { find(); }), HasSubstr("with 64 threads, the trace comes from"));
  hardware_.processor = {.name = "Zuse Z3", .threads = origin_.threads};
  EXPECT_THAT(error_of([&] { find(); }), HasSubstr("was measured on Zuse Z3"));
}

}  // namespace
}  // namespace tessera
