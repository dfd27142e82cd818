// Block quantisation on every device beside the plain kernel, and beside an independent program,
// tests/reference/quantisation.py, which says what tests/fixtures/quantisation holds.

#include <limits>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <rapidcheck/gtest.h>

#include "base/file.h"
#include "base/words.h"
#include "quantise_run.h"
#include "support/emulated.h"

namespace tessera::testing {
namespace {

nlohmann::json fixture() {
  return nlohmann::json::parse(
      read_file(fs::path(TESSERA_SOURCE) / "tests/fixtures/quantisation/expected.json"));
}

QuantisedFormat format_of(const nlohmann::json& row) {
  return {from_word<QuantisedType>(row["type"].get<std::string>()), row["block"]};
}

uint32_t bits_of_digits(const std::string& digits) {
  if (digits == "nan") return 0x7fc00000u;
  const auto bits = static_cast<uint32_t>(std::stoul(digits, nullptr, 16));
  return digits.size() == 4 ? bits << 16 : bits;
}

std::vector<uint32_t> bits_in(const nlohmann::json& list) {
  std::vector<uint32_t> bits;
  for (const auto& digits : list) bits.push_back(bits_of_digits(digits.get<std::string>()));
  return bits;
}

Tensor tensor_in(const nlohmann::json& list) {
  Tensor tensor({static_cast<int64_t>(list.size())}, DType::f32);
  int64_t i = 0;
  for (const uint32_t bits : bits_in(list)) {
    tensor.data<float>()[i++] = std::bit_cast<float>(bits);
  }
  return tensor;
}

Bytes bytes_in(const nlohmann::json& digits) {
  const auto text = digits.get<std::string>();
  Bytes bytes;
  for (size_t i = 0; i < text.size(); i += 2) {
    bytes.push_back(static_cast<unsigned char>(std::stoul(text.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

/// Calls body(options) for the plain kernel, the fast one and each device.
template <typename Body>
void for_each_kernel(const Body& body) {
  for (const Kernels kernels : {Kernels::plain, Kernels::fast}) {
    SCOPED_TRACE(kernels == Kernels::plain ? "plain" : "fast");
    body(QuantiseOptions{.kernels = kernels});
  }
  for (const Emulation& device : every_device()) {
    SCOPED_TRACE(describe(device));
    body(QuantiseOptions{.device = device});
  }
}

TEST(QuantiseOnDevices, HaveTheReferencesPiecesAndElements) {
  const nlohmann::json rows = fixture()["blocks"];
  ASSERT_EQ(rows.size(), 47U);
  for_each_kernel([&](const QuantiseOptions& options) {
    for (const auto& row : rows) {
      SCOPED_TRACE(row["type"].get<std::string>() + ": " + row["name"].get<std::string>());
      const Tensor x = tensor_in(row["x"]);
      QuantiseRun run(format_of(row), options);
      const Bytes piece = run.quantise(x);
      EXPECT_EQ(piece, bytes_in(row["piece"]));
      EXPECT_EQ(bits_of_numbers(run.dequantise(piece, x.elements(), DType::f32)),
                bits_in(row["restored"]));
      EXPECT_EQ(bits_of_numbers(run.dequantise(piece, x.elements(), DType::bf16)),
                bits_in(row["restored_bf16"]));
      const Tensor narrow(x.shape(), DType::bf16);
      convert(x, narrow);
      if (bits_of_numbers(narrow) == bits_of_numbers(x)) {
        EXPECT_EQ(run.quantise(narrow), piece);
      }
    }
  });
}

TEST(QuantiseOnDevices, HaveTheReferencesErrorFeedback) {
  const nlohmann::json rows = fixture()["feedback"];
  ASSERT_EQ(rows.size(), 4U);
  for_each_kernel([&](const QuantiseOptions& options) {
    for (const auto& row : rows) {
      const Tensor x = tensor_in(row["x"]);
      const Tensor error(x.shape(), DType::f32);
      error.fill_zero();
      QuantiseRun run(format_of(row), options);
      for (const auto& step : row["steps"]) {
        EXPECT_EQ(run.quantise_with_feedback(x, error, row["beta"]), bytes_in(step["piece"]));
        EXPECT_EQ(bits_of_numbers(error), bits_in(step["error"]));
      }
    }
  });
}

TEST(QuantiseOnDevices, HaveTheReferencesSumsOverRanks) {
  const nlohmann::json rows = fixture()["sums"];
  ASSERT_EQ(rows.size(), 2U);
  for_each_kernel([&](const QuantiseOptions& options) {
    for (const auto& row : rows) {
      QuantiseRun run(format_of(row), options);
      Tensor sums({static_cast<int64_t>(row["sum"].size())}, DType::f32);
      sums.fill_zero();
      for (size_t rank = 0; rank < row["x"].size(); ++rank) {
        const Bytes piece = run.quantise(tensor_in(row["x"][rank]));
        EXPECT_EQ(piece, bytes_in(row["pieces"][rank]));
        sums = run.dequantise_add(piece, sums);
      }
      EXPECT_EQ(bits_of_numbers(sums), bits_in(row["sum"]));
    }
  });
}

TEST(QuantiseOnDevices, LeaveTheErrorOfBlocksThatAreNotFinite) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> addends{1, kNan, 2, 3, 1.1f, 2.2f, 3.3f, 4.4f, kInfinity};
  const std::vector<float> before{0.5f, 0.25f, -1, 2, 3, 4, 5, 6, 0.125f};
  for_each_kernel([&](const QuantiseOptions& options) {
    QuantiseRun run({QuantisedType::int4, 4}, options);
    const Tensor values({9}, DType::f32), error({9}, DType::f32);
    std::ranges::copy(addends, values.data<float>());
    std::ranges::copy(before, error.data<float>());
    run.quantise_with_feedback(values, error, 0.8);
    for (size_t i = 0; i < before.size(); ++i) {
      const bool in_finite_block = i / 4 == 1;
      EXPECT_EQ(error.data<float>()[i] != before[i], in_finite_block) << "element " << i;
    }
  });
}

RC_GTEST_PROP(QuantiseOnDevices, GiveThePlainKernelsBits, ()) {
  const QuantisedFormat format = any_format();
  const int64_t elements = any_elements(format);
  const DType dtype = *rc::gen::element(DType::f32, DType::bf16);
  const auto offset = *rc::gen::element<int64_t>(0, 1, 4, 8);
  const auto seed = *rc::gen::inRange<uint64_t>(0, 1000);
  const Tensor values = numbers_of_all_sizes(elements, dtype, seed);
  if (seed % 3 == 0) {
    plant(values, static_cast<int64_t>(seed) % elements, std::numeric_limits<float>::quiet_NaN());
  }
  expect_device_equals([&](const std::optional<Emulation>& device) {
    QuantiseRun run(format, {.kernels = Kernels::plain, .device = device, .offset = offset});
    const Bytes piece = run.quantise(values);
    return bits_of(piece, bits_of_numbers(run.dequantise(piece, elements, dtype)));
  });
}

RC_GTEST_PROP(QuantiseOnDevices, GiveThePlainKernelsErrorsAndSums, ()) {
  const QuantisedFormat format = any_format();
  const int64_t elements = any_elements(format);
  const auto offset = *rc::gen::element<int64_t>(0, 1, 4);
  const auto seed = *rc::gen::inRange<uint64_t>(0, 1000);
  const Tensor values = numbers_of_all_sizes(elements, DType::f32, seed);
  if (seed % 3 == 0) {
    plant(values, static_cast<int64_t>(seed) % elements, std::numeric_limits<float>::infinity());
  }
  expect_device_equals([&](const std::optional<Emulation>& device) {
    QuantiseRun run(format, {.kernels = Kernels::plain, .device = device, .offset = offset});
    const Tensor error = numbers_of_all_sizes(elements, DType::f32, seed + 1);
    const Bytes piece = run.quantise_with_feedback(values, error, 0.8);
    return bits_of(piece, bits_of_numbers(error),
                   bits_of_numbers(run.dequantise_add(piece, values)));
  });
}

}  // namespace
}  // namespace tessera::testing
