#include "hardware/hardware_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "hardware/hardware_report.h"
#include "support/error_of.h"
#include "support/xml.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Hardware example() {
  return {{"Some CPU", {"avx2", "amx_bf16"}, 1024, 2048, 4096, 2},
          {{DType::bf16, GemmLayout::forward, 512, 512, 512, 9e12, 8e12},
           {DType::bf16, GemmLayout::forward, 1024, 1024, 1024, 2e12, 1.9e12},
           {DType::bf16, GemmLayout::forward, 2048, 2048, 2048, 2.5e12, 2.4e12},
           {DType::bf16, GemmLayout::weight_gradient, 2048, 2048, 2048, 7e12, 7e12},
           {DType::bf16, GemmLayout::forward, 4096, 2048, 2048, 8e12, 8e12},
           {DType::f64, GemmLayout::forward, 256, 256, 256, 3e9, 2e9}},
          {{MemoryKernel::copy, 1 << 20, 9e10, 8e10},
           {MemoryKernel::copy, 1 << 28, 2e10, 1e10},
           {MemoryKernel::triad, 1 << 20, 5e10, 4e10},
           {MemoryKernel::update, 1 << 28, 3e10, 2e10}}};
}

Hardware parse(const nlohmann::json& json) { return parse_hardware(json.dump(), "machine.json"); }

TEST(HardwareFile, RoundTrips) {
  const Hardware written = example();
  const Hardware read = parse_hardware(hardware_json(written), "machine.json");
  EXPECT_EQ(read.processor, written.processor);
  EXPECT_EQ(read.gemms, written.gemms);
  EXPECT_EQ(read.memory, written.memory);
  const Hardware nothing{written.processor, {}, {}};
  EXPECT_TRUE(parse_hardware(hardware_json(nothing), "x").gemms.empty());
}

TEST(HardwareFile, ThePeakIsThatOfLargeForwardSquares) {
  Hardware hardware = example();
  EXPECT_EQ(hardware.gemm_peak(DType::bf16), 2.5e12);
  EXPECT_TRUE(is_plain_square(hardware.gemms[0]));
  EXPECT_FALSE(is_plain_square(hardware.gemms[3]));  // a weight gradient
  EXPECT_FALSE(is_plain_square(hardware.gemms[4]));
  EXPECT_EQ(hardware.gemm_peak(DType::f64), 3e9);
  EXPECT_THAT(error_of([&] { hardware.gemm_peak(DType::f32); }),
              AllOf(HasSubstr("no square matrix product of f32"),
                    HasSubstr("`tessera bench all --precision fp32`")));
  // The run measures none larger than 4096, so that its MFU would refer to another peak.
  hardware.gemms.push_back({DType::bf16, GemmLayout::forward, 8192, 8192, 8192, 6e12, 6e12});
  EXPECT_EQ(hardware.gemm_peak(DType::bf16), 2.5e12);
  hardware.gemms.push_back({DType::bf16, GemmLayout::forward, 4096, 4096, 4096, 2.6e12, 2e12});
  EXPECT_EQ(hardware.gemm_peak(DType::bf16), 2.6e12);
  hardware.gemms.pop_back();
  const auto json = nlohmann::json::parse(hardware_json(hardware));
  EXPECT_EQ(json["gemm_peak"], nlohmann::json({{"bf16", 2.5e12}, {"f64", 3e9}}));
}

TEST(HardwareFile, BandwidthIsThatOfTheBestLoopOverTheLargestWorkingSet) {
  Hardware hardware = example();
  EXPECT_EQ(hardware.memory_bandwidth(), 3e10);
  hardware.memory.push_back({MemoryKernel::triad, 1 << 28, 4e10, 4e10});
  EXPECT_EQ(hardware.memory_bandwidth(), 4e10);
}

/// As older versions wrote them: nothing is read that would be too low.
TEST(HardwareFile, BandwidthNeedsTheLoopInPlaceOverTheLargestWorkingSet) {
  Hardware hardware = example();
  hardware.memory.back().bytes = 1 << 20;
  const auto error = [&] { return error_of([&] { hardware.memory_bandwidth(); }); };
  EXPECT_THAT(error(), AllOf(HasSubstr("no bandwidth of the loop 'update'"),
                             HasSubstr("`tessera bench all`")));
  hardware.memory.clear();
  EXPECT_THAT(error(), HasSubstr("no bandwidth of the loop 'update'"));
}

TEST(HardwareFile, DamageIsNamed) {
  const auto good = nlohmann::json::parse(hardware_json(example()));
  const auto expect_error = [&](const char* pointer, const nlohmann::json& value,
                                const char* message) {
    nlohmann::json bad = good;
    bad[nlohmann::json::json_pointer(pointer)] = value;
    EXPECT_THAT(error_of([&] { parse(bad); }), HasSubstr(message)) << pointer;
  };
  expect_error("/format", "something", "machine.json: \"format\" is \"something\", expected");
  expect_error("/version", 3, "\"version\" is 3, expected 1 or 2; measure again");
  expect_error("/processor", 3, "machine.json: processor: found no JSON object");
  expect_error("/processor/threads", 0,
               "\"threads\" is 0, expected a whole number from 1 to 2147483647");
  expect_error("/processor/threads", 1.5, "\"threads\" is 1.5");
  expect_error("/processor/threads", 9000000000000, "\"threads\" is 9000000000000");
  expect_error("/processor/features/0", 7, "processor: features[0] is 7, expected a text");
  expect_error("/processor/features/0", "\x1b[2J",
               "features[0] is \"\\u001b[2J\", expected a text");
  expect_error("/processor/name", "a\nb", "\"name\" is \"a\\nb\", expected a text of at most");
  expect_error("/processor/name", std::string(201, 'a'), "without control characters");
  expect_error("/gemm/1/dtype", "\x1b", "gemm[1]: \"dtype\" is \"\\u001b\", expected a text");
  expect_error("/gemm", "none", "\"gemm\" is \"none\", expected an array");
  expect_error("/gemm/1/dtype", "f8", "machine.json: gemm[1]: ");
  expect_error("/gemm/1/layout", "up", "machine.json: gemm[1]: there is no layout");
  expect_error("/gemm/2/m", -4, "machine.json: gemm[2]: \"m\" is -4");
  expect_error("/gemm/2/best", 0, "\"best\" is 0, expected a number from 1 to 1e+18");
  expect_error("/gemm/2/best", 1e300, "expected a number from 1 to 1e+18");
  expect_error("/gemms", 1, "machine.json: unknown member \"gemms\"; did you mean \"gemm\"?");
  expect_error("/gemm/0/layouts", 1, "gemm[0]: unknown member \"layouts\"");
  expect_error("/memory/0/byte", 1, "memory[0]: unknown member \"byte\"");
  expect_error("/processor/thread", 1, "processor: unknown member \"thread\"");
  expect_error("/gemm/2/median", nullptr, "\"median\" is null");
  expect_error("/memory/0/kernel", "sum", "memory[0]: there is no memory loop 'sum'");
  expect_error("/memory/0/bytes", 18446744073709551615U, "\"bytes\" is 18446744073709551615");
  nlohmann::json without = good;
  without.erase("memory");
  EXPECT_THAT(error_of([&] { parse(without); }), HasSubstr("machine.json: there is no \"memory\""));
  EXPECT_THAT(error_of([&] { parse_hardware("[]", "machine.json"); }), HasSubstr("no JSON object"));
  EXPECT_THAT(error_of([&] { parse_hardware("{", "machine.json"); }), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of([] { read_hardware("/nowhere.json"); }), HasSubstr("/nowhere.json"));
}

TEST(HardwareFile, BelongsToOneProcessorAndNumberOfThreads) {
  Hardware hardware = example();
  hardware.processor = this_processor(2);
  require_same_processor(hardware, 2, "machine.json");
  EXPECT_THAT(error_of([&] { require_same_processor(hardware, 3, "machine.json"); }),
              HasSubstr("`tessera bench all --threads 3"));
  hardware.processor.features.emplace_back("more");
  EXPECT_THAT(error_of([&] { require_same_processor(hardware, 2, "machine.json"); }),
              HasSubstr("machine.json was measured on"));
  hardware.processor = this_processor(2);
  hardware.processor.name = "Another CPU";
  EXPECT_THAT(error_of([&] { require_same_processor(hardware, 2, "machine.json"); }),
              HasSubstr("Another CPU"));
}

TEST(HardwareReport, ShowsEveryTable) {
  Hardware hardware = example();
  hardware.gemms.push_back({DType::bf16, GemmLayout::forward, 4096, 1024, 2048, 1.5e12, 1e12});
  const GemmSweep sweep{.m = {4096}, .n = {1024, 2048}, .k = {2048}};
  const std::string text = gemm_text(hardware, sweep);
  EXPECT_THAT(text, HasSubstr("bf16, K = 2048, GFLOP/s"));
  EXPECT_THAT(text, HasSubstr("8000.0"));
  EXPECT_THAT(text, HasSubstr("bf16 peak (best square): 2500.0 GFLOP/s"));
  const std::string picture = testing::texts_of(gemm_picture(hardware, sweep));
  for (const char* part : {"|bf16, K = 2048|", "|8000|", "|1500|", "|M|", "|N|", "|GFLOP/s|"}) {
    EXPECT_THAT(picture, HasSubstr(part));
  }
  EXPECT_THAT(memory_text(hardware), HasSubstr("1.0 MiB  90.0"));
  const std::string lines = testing::texts_of(memory_picture(hardware));
  for (const char* part : {"|copy|", "|triad|", "|update|", "|GB/s|"})
    EXPECT_THAT(lines, HasSubstr(part));
}

/// The sweep's own square is one of the products asked for, those measured beside it are not.
TEST(HardwareReport, ShowsTheSquaresThatWereAskedFor) {
  Hardware hardware = example();
  hardware.gemms.push_back({DType::bf16, GemmLayout::forward, 2048, 2048, 512, 1.5e12, 1e12});
  const GemmSweep sweep{.m = {2048}, .n = {2048}, .k = {512, 2048}};
  const std::string text = gemm_text(hardware, sweep);
  EXPECT_THAT(text, AllOf(HasSubstr("bf16, K = 512"), HasSubstr("1500.0"),
                          HasSubstr("bf16, K = 2048"), HasSubstr("2500.0")));
  EXPECT_THAT(text, Not(HasSubstr("K = 1024")));
  EXPECT_THAT(testing::texts_of(gemm_picture(hardware, sweep)),
              AllOf(HasSubstr("|1500|"), HasSubstr("|2500|"), Not(HasSubstr("|2000|"))));
}

TEST(HardwareReport, ShowsASingleProductAndASingleSize) {
  Hardware hardware = example();
  hardware.gemms.resize(1);
  hardware.memory.resize(1);
  const GemmSweep sweep{.m = {512}, .n = {512}, .k = {512}};
  EXPECT_THAT(gemm_text(hardware, sweep), HasSubstr("bf16, K = 512"));
  EXPECT_THAT(testing::texts_of(gemm_picture(hardware, sweep)), HasSubstr("|9000|"));
  EXPECT_THAT(testing::texts_of(memory_picture(hardware)), HasSubstr("|bytes of all arrays|"));
}

}  // namespace
}  // namespace tessera
