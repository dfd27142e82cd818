#include "hardware/accelerator_facts.h"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "hardware/hardware_file.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

Hardware accelerated() {
  Hardware hardware;
  hardware.accelerator =
      AcceleratorFacts{.name = "Some GPU",
                       .device = Device::hip,
                       .architecture = "gfx90a",
                       .lanes = {64, Origin::data_sheet},
                       .multiprocessors = {110, Origin::driver},
                       .memory_bytes = {64000000000, Origin::data_sheet},
                       .memory_bandwidth = Figure<double>{1.6e12, Origin::data_sheet},
                       .peaks = {{DType::bf16, {2e14, Origin::data_sheet}}},
                       .tf32_flops = Figure<double>{1e14, Origin::data_sheet},
                       .links = {{"to a neighbour", {5e10, Origin::publication}}}};
  return hardware;
}

TEST(AcceleratorFacts, RoundTripThroughAHardwareFile) {
  const Hardware written = accelerated();
  const Hardware read = parse_hardware(hardware_json(written), "gpu.json");
  EXPECT_EQ(read.accelerator, written.accelerator);
  EXPECT_TRUE(read.processor.name.empty());
  Hardware measured = accelerated();
  measured.processor = {"Some CPU", {"avx2"}, 1, 2, 3, 4};
  measured.accelerator->memory_bandwidth.reset();
  measured.accelerator->tf32_flops.reset();
  const Hardware again = parse_hardware(hardware_json(measured), "gpu.json");
  EXPECT_EQ(again.accelerator, measured.accelerator);
  EXPECT_EQ(again.processor, measured.processor);
}

TEST(AcceleratorFacts, GiveTheTarget) {
  const Target target = target_of(*accelerated().accelerator);
  EXPECT_EQ(target.device, Device::hip);
  EXPECT_EQ(target.memory_bytes, 64000000000);
  EXPECT_EQ(target.multiprocessors, 110);
}

TEST(AcceleratorFacts, CeilingsAreTheDataSheetsUntilTheyAreMeasured) {
  Hardware hardware = accelerated();
  EXPECT_EQ(hardware.gemm_peak(DType::bf16), 2e14);
  EXPECT_EQ(hardware.memory_bandwidth(), 1.6e12);
  EXPECT_THAT(error_of([&] { hardware.gemm_peak(DType::f32); }), HasSubstr("f32"));
  EXPECT_EQ(hardware.tf32_peak(), 1e14);
  hardware.gemms.push_back({DType::bf16, GemmLayout::forward, 4096, 4096, 4096, 1.5e14, 1.4e14});
  hardware.memory.push_back({MemoryKernel::copy, 1 << 28, 1.3e12, 1.2e12});
  EXPECT_EQ(hardware.gemm_peak(DType::bf16), 1.5e14);
  EXPECT_EQ(hardware.memory_bandwidth(), 1.3e12);
  hardware.accelerator->memory_bandwidth.reset();
  hardware.memory.clear();
  EXPECT_THAT(error_of([&] { hardware.memory_bandwidth(); }), HasSubstr("no bandwidth"));
}

TEST(AcceleratorFacts, DamageIsNamed) {
  const auto good = nlohmann::json::parse(hardware_json(accelerated()));
  const auto error = [&](const nlohmann::json& bad) {
    return error_of([&] { parse_hardware(bad.dump(), "gpu.json"); });
  };
  const auto expect_error = [&](const char* pointer, const nlohmann::json& value,
                                const char* message) {
    nlohmann::json bad = good;
    bad[nlohmann::json::json_pointer(pointer)] = value;
    EXPECT_THAT(error(bad), HasSubstr(message)) << pointer;
  };
  expect_error("/version", 1, "gpu.json: there is no \"processor\"");
  expect_error("/accelerator", 3, "gpu.json: accelerator: found no JSON object");
  expect_error("/accelerator/device", "tpu", "accelerator: there is no device 'tpu'");
  expect_error("/accelerator/device", "cpu", "accelerator: the device is cpu");
  expect_error("/accelerator/memory_bytes", 5, "accelerator: memory_bytes: found no JSON object");
  expect_error("/accelerator/memory_bytes/value", 0,
               "accelerator: memory_bytes: \"value\" is 0, expected a whole number from 1 to "
               "1125899906842624");
  expect_error("/accelerator/memory_bytes/value", 1e18,
               "expected a whole number from 1 to 1125899906842624, in digits");
  expect_error("/accelerator/memory_bytes/origin", "a friend",
               "accelerator: memory_bytes: there is no origin of figures 'a friend'");
  expect_error("/accelerator/lanes/value", 48, "expected 32 or 64");
  expect_error("/accelerator/multiprocessors/value", 1.5, "multiprocessors: \"value\" is 1.5");
  expect_error("/accelerator/peak_flops/f7", {{"value", 1}, {"origin", "driver"}},
               "peak_flops: unknown element type 'f7'");
  expect_error("/accelerator/peak_flops/bf16/value", -1, "peak_flops: bf16: \"value\" is -1");
  for (const double rate : {1e-300, 999999.0, 1.1e18, 1e300}) {
    for (const char* const member : {"memory_bandwidth", "peak_flops/bf16", "links/0/each_way"}) {
      expect_error(fmt::format("/accelerator/{}/value", member).c_str(), rate,
                   "expected a number from 1e+06 to 1e+18");
    }
  }
  expect_error("/accelerator/tf32_flops/value", 0, "tf32_flops: \"value\" is 0");
  expect_error("/accelerator/links/0/each_way", 1, "links[0]: each_way: found no JSON object");
  expect_error("/accelerator/memory_bandwith", 1,
               "gpu.json: accelerator: unknown member \"memory_bandwith\"; did you mean "
               "\"memory_bandwidth\"?");
  expect_error("/accelerator/zebra", 1, "unknown member \"zebra\"; known are name, device, ");
  expect_error("/accelerator/lanes/orgin", 1, "accelerator: lanes: unknown member \"orgin\"");
  expect_error("/accelerator/links/0/eachway", 1, "links[0]: unknown member \"eachway\"");
  expect_error("/accelerator/device", "cuda",
               "accelerator: \"architecture\" is \"gfx90a\", expected one of the device \"cuda\"");
  expect_error("/accelerator/device", "emulated", "expected \"emulated\", as the device");
  expect_error("/accelerator/architecture", "sm_90", "expected one of the device \"hip\"");
  for (const char* member : {"name", "architecture", "memory_bytes", "peak_flops", "links"}) {
    nlohmann::json partial = good;
    partial["accelerator"].erase(member);
    EXPECT_THAT(error(partial),
                HasSubstr(fmt::format("gpu.json: accelerator: there is no \"{}\"", member)));
  }
  nlohmann::json without = good;
  without.erase("accelerator");
  EXPECT_THAT(error(without), HasSubstr("gpu.json: there is no \"accelerator\""));
}

TEST(AcceleratorFacts, AreRefusedForARunOnTheProcessor) {
  EXPECT_THAT(error_of([] { require_same_processor(accelerated(), 1, "gpu.json"); }),
              HasSubstr("gpu.json is about Some GPU"));
}

/// What the makers' data sheets say: GB of memory, TB/s, dense bf16 TFLOP/s, multiprocessors.
TEST(AcceleratorFacts, OfTheShippedFilesAreThoseOfTheDataSheets) {
  struct Sheet {
    double gigabytes, terabytes_per_second, teraflops;
    int multiprocessors, lanes;
  };
  const std::map<std::string, Sheet> sheets{
      {"nvidia-h200", {141, 4.8, 989, 132, 32}},
      {"nvidia-h100", {80, 3.35, 989, 132, 32}},
      {"nvidia-h800", {80, 3.35, 989, 132, 32}},
      {"amd-mi300x", {192, 5.3, 1307.4, 304, 64}},
      {"amd-mi250x-gcd", {128.0 / 2, 1.6, 383.0 / 2, 110, 64}}};
  size_t count = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(TESSERA_SOURCE) / "configs/hardware")) {
    const Hardware hardware = read_hardware(entry.path());
    const AcceleratorFacts& facts = hardware.accelerator.value();
    const Sheet& sheet = sheets.at(entry.path().stem().string());
    EXPECT_NEAR(static_cast<double>(facts.memory_bytes.value), 1e9 * sheet.gigabytes, 1);
    EXPECT_NEAR(hardware.memory_bandwidth(), 1e12 * sheet.terabytes_per_second, 1);
    EXPECT_NEAR(hardware.gemm_peak(DType::bf16), 1e12 * sheet.teraflops, 1);
    EXPECT_GT(hardware.gemm_peak(DType::f32), 0);
    EXPECT_EQ(facts.multiprocessors.value, sheet.multiprocessors);
    EXPECT_EQ(facts.lanes.value, sheet.lanes);
    EXPECT_EQ(facts.memory_bytes.origin, Origin::data_sheet);
    EXPECT_FALSE(facts.links.empty());
    ++count;
  }
  EXPECT_EQ(count, sheets.size());
}

}  // namespace
}  // namespace tessera
