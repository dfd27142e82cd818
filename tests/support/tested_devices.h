#pragma once

#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/round_up.h"
#include "base/words.h"
#include "support/bits.h"

namespace tessera::testing {

/// The devices that the environment variable TESSERA_TEST_DEVICES names: "emulated", "cuda" or
/// "emulated,cuda". What it names must be there. Where it is not set, that is the emulated device,
/// and a GPU if there is one. AMD's wait for their library of matrix products.
struct DevicesUnderTest {
  bool emulated = true;
  std::optional<Device> real;
  std::string missing;  ///< why there is no real device
};

/// Throws Error if a device that is named is not there.
inline const DevicesUnderTest& devices_under_test() {
  static const DevicesUnderTest devices = [] {
    DevicesUnderTest result;
    const char* const named = std::getenv("TESSERA_TEST_DEVICES");
    const std::string names = named == nullptr ? "" : named;
    if (names == "emulated") {
      result.missing = "TESSERA_TEST_DEVICES names the emulated device alone";
      return result;
    }
    if (!names.empty() && names != "cuda" && names != "emulated,cuda") {
      throw Error("TESSERA_TEST_DEVICES is '{}'; it is emulated, cuda or emulated,cuda", names);
    }
    result.emulated = names != "cuda";
    try {
      open_accelerator(Device::cuda);
      result.real = Device::cuda;
    } catch (const Error& error) {
      if (!names.empty()) throw;
      result.missing = error.what();
    }
    return result;
  }();
  return devices;
}

/// Each device once: the emulated one with warps of 32 and of 64 threads, and the real one.
inline std::vector<Emulation> every_device() {
  std::vector<Emulation> devices;
  if (devices_under_test().emulated) devices = {{.lanes = 32}, {.lanes = 64}};
  if (const auto real = devices_under_test().real) devices.push_back({.device = *real});
  return devices;
}

/// The same by the words that configurations have for them.
inline std::vector<std::string> words_of_devices() {
  std::vector<std::string> words;
  if (devices_under_test().emulated) words.emplace_back(word(Device::emulated));
  if (const auto real = devices_under_test().real) words.emplace_back(word(*real));
  return words;
}

inline std::string describe(const Emulation& device) {
  if (device.device != Device::emulated) return std::string(word(device.device));
  return fmt::format("warps of {}, order {}", device.lanes, static_cast<int>(device.options.order));
}

/// Returns the size of an operand of a matrix product: on a real device the next multiple of 8 in
/// bf16, because libraries there multiply no rows that begin at odd addresses.
inline int64_t product_size(int64_t size, DType dtype) {
  return dtype == DType::bf16 && devices_under_test().real ? round_up(size, 8) : size;
}

/// Prints a figure of a real device beside the bound that it is to be compared with but need not
/// keep. scripts/gpu_check keeps such lines with its results.
inline void print_figure(std::string_view what, double figure, double bound) {
  fmt::print("figure: {} {:.3g} beside {:.3g}\n", what, figure, bound);
}

/// Runs of one device that must give equal bits.
using DeviceRuns = std::vector<Emulation>;

/// The emulated device with warps of `lanes` threads, in three orders of its threads: a kernel that
/// lacks a barrier gives other bits. The real device twice.
inline std::vector<DeviceRuns> tested_devices(int lanes) {
  std::vector<DeviceRuns> devices;
  if (devices_under_test().emulated) {
    devices.emplace_back();
    for (const emulation::Order order :
         {emulation::Order::forward, emulation::Order::backward, emulation::Order::shuffled}) {
      devices.back().push_back({lanes, {.order = order, .seed = 1}});
    }
  }
  if (const auto real = devices_under_test().real) {
    devices.push_back({{.device = *real}, {.device = *real}});
  }
  return devices;
}

/// Adds a line about a device's results to the file that the environment variable TESSERA_TEST_BITS
/// names: the test, the device, and FNV-1a of the bits. Two processes must write the same.
inline void write_bits(const Emulation& device, const Bits& bits) {
  const char* const file = std::getenv("TESSERA_TEST_BITS");
  if (file == nullptr) return;
  uint64_t hash = 0xcbf29ce484222325;
  for (const unsigned char byte : bits) hash = (hash ^ byte) * 0x100000001b3;
  const ::testing::TestInfo& test = *::testing::UnitTest::GetInstance()->current_test_info();
  std::FILE* const out = std::fopen(file, "a");
  if (out == nullptr) throw Error("cannot write {}", file);
  fmt::print(out, "{}.{} on {}: {:016x}\n", test.test_suite_name(), test.name(), describe(device),
             hash);
  std::fclose(out);
}

/// Calls run(device) for all runs of each device. Those of one device must give equal bits: it
/// returns something of which bits_of() takes the bits. check(result) is called with the first
/// result of each device.
template <typename Run, typename Check>
void expect_equal_bits_on_devices(int lanes, const Run& run, const Check& check) {
  for (const DeviceRuns& runs : tested_devices(lanes)) {
    std::optional<Bits> first;
    for (const Emulation& device : runs) {
      SCOPED_TRACE(describe(device));
      const auto result = run(device);
      Bits bits = bits_of(result);
      ASSERT_FALSE(bits.empty());
      if (!first) {
        write_bits(device, bits);
        check(result);
        if (::testing::Test::HasFatalFailure()) return;
        first = std::move(bits);
      } else {
        ASSERT_TRUE(bits == *first) << "bits differ from run to run";
      }
    }
  }
}

}  // namespace tessera::testing
