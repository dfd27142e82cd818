#include "hardware/tuned_products_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <rapidcheck/gtest.h>

#include "base/hash_line.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TunedTable tuned_example() {
  TunedTable table{
      .library = "cuBLASLt 130100", .device = "NVIDIA H200", .products = {}, .grouped = {}};
  table.products.push_back({.shape = tuned_shape({.m = 4096,
                                                  .n = 2048,
                                                  .k = 8192,
                                                  .input = DType::bf16,
                                                  .output = DType::f32,
                                                  .transpose_a = true,
                                                  .accumulate = true,
                                                  .lda = 5000}),
                            .seconds = 1e-4,
                            .heuristic_seconds = 1.25e-4});
  for (size_t i = 0; i < table.products[0].algorithm.size(); ++i) {
    table.products[0].algorithm[i] = static_cast<std::byte>(255 - 3 * i);
  }
  table.products.push_back({.shape = tuned_shape({.m = 7, .n = 5, .k = 3, .transpose_b = true}),
                            .tf32 = true,
                            .seconds = 1.0 / 3,
                            .heuristic_seconds = 1.0 / 3});
  const GroupedShape grouped{.kind = GroupedKind::input_gradient,
                             .groups = 64,
                             .rows = 32768,
                             .in = 2048,
                             .out = 1024,
                             .input = DType::bf16,
                             .output = DType::bf16,
                             .adds = true};
  GroupedShape other = grouped;
  other.adds = false;
  table.grouped = {faster_library(grouped, {1e-4}, {}), faster_library(other, {2e-4}, {1.5e-4})};
  return table;
}

/// The text of the example with one change, and a hash that fits.
std::string changed_table(const std::function<void(nlohmann::ordered_json&)>& change) {
  auto json = nlohmann::ordered_json::parse(tuned_products_json(tuned_example()));
  json.erase("xxh3");
  change(json);
  return with_hash_line(json.dump(1) + "\n");
}

std::string refusal_of_table(const std::function<void(nlohmann::ordered_json&)>& change) {
  return error_of([&] { parse_tuned_products(changed_table(change), "t.json"); });
}

TEST(TunedProductsFile, RoundTrips) {
  EXPECT_EQ(parse_tuned_products(tuned_products_json(tuned_example()), "t.json"), tuned_example());
  EXPECT_EQ(parse_tuned_products(changed_table([](auto&) {}), "t.json"), tuned_example());
  const TunedTable none{.library = "a \"b\"", .device = "c\\d", .products = {}, .grouped = {}};
  EXPECT_EQ(parse_tuned_products(tuned_products_json(none), "t.json"), none);
}

RC_GTEST_PROP(TunedProductsFile, DamageIsFound, ()) {
  std::string text = tuned_products_json(tuned_example());
  const auto at = *rc::gen::inRange<size_t>(0, text.size());
  const auto bit = *rc::gen::inRange(0, 7);
  text[at] = static_cast<char>(text[at] ^ (1 << bit));
  // Another case of the hash's own digits is no damage.
  if (bit == 5 && at < text.find('\n', 2)) return;
  RC_ASSERT_THROWS_AS(parse_tuned_products(text, "t.json"), Error);
}

TEST(TunedProductsFile, CutShortIsFound) {
  const std::string text = tuned_products_json(tuned_example());
  for (size_t length = 0; length + 1 < text.size(); length += 7) {
    EXPECT_THROW(parse_tuned_products(text.substr(0, length), "t.json"), Error) << length;
  }
}

TEST(TunedProductsFile, WithoutItsHashIsRefused) {
  auto json = nlohmann::ordered_json::parse(tuned_products_json(tuned_example()));
  json.erase("xxh3");
  EXPECT_THAT(error_of([&] { parse_tuned_products(json.dump(), "t.json"); }),
              AllOf(HasSubstr("t.json"), HasSubstr("hash")));
}

TEST(TunedProductsFile, WhatIsNotAsItShouldBeIsNamed) {
  const auto product = [](nlohmann::ordered_json& json) -> nlohmann::ordered_json& {
    return json["products"][1];
  };
  EXPECT_THAT(refusal_of_table([](auto& json) { json["format"] = "tessera hardware"; }),
              HasSubstr("no table of tuned products"));
  EXPECT_THAT(refusal_of_table([](auto& json) { json["version"] = 1; }),
              AllOf(HasSubstr("\"version\" is 1"), HasSubstr("expected 2"),
                    HasSubstr("tessera bench products")));
  EXPECT_THAT(refusal_of_table([](auto& json) { json["products"] = 3; }),
              HasSubstr("\"products\""));
  EXPECT_THAT(refusal_of_table([](auto& json) { json["device"] = nullptr; }),
              HasSubstr("\"device\""));
  EXPECT_THAT(refusal_of_table([&](auto& json) { product(json).erase("k"); }),
              AllOf(HasSubstr("products[1]"), HasSubstr("\"k\"")));
  EXPECT_THAT(refusal_of_table([&](auto& json) { product(json)["m"] = 0; }),
              HasSubstr("\"m\" is 0"));
  EXPECT_THAT(refusal_of_table([&](auto& json) { product(json)["ldb"] = 2; }),
              AllOf(HasSubstr("\"ldb\" is 2"), HasSubstr("from 3")));
  EXPECT_THAT(refusal_of_table([&](auto& json) { product(json)["input"] = "f64"; }),
              AllOf(HasSubstr("\"input\""), HasSubstr("\"bf16\" or \"f32\"")));
  EXPECT_THAT(refusal_of_table([&](auto& json) { product(json)["seconds"] = 0; }),
              HasSubstr("above 0"));
  EXPECT_THAT(refusal_of_table([&](auto& json) { product(json)["tf32"] = 1; }),
              HasSubstr("true or false"));
  EXPECT_THAT(refusal_of_table([&](auto& json) { product(json)["algorithm"] = "0g"; }),
              HasSubstr("128 hexadecimal digits"));
  EXPECT_THAT(refusal_of_table([&](auto& json) { json["products"][0] = json["products"][1]; }),
              AllOf(HasSubstr("products[1]"), HasSubstr("already")));
}

TEST(TunedProductsFile, TheTextSaysWhatTuningGained) {
  const std::string text = tuned_products_text(tuned_example());
  EXPECT_THAT(text, AllOf(HasSubstr("cuBLASLt 130100 on NVIDIA H200"), HasSubstr("+25.0 %"),
                          HasSubstr("bf16 to f32, added"), HasSubstr("+0.0 %"),
                          HasSubstr("f32 to f32, TF32")));
}

}  // namespace
}  // namespace tessera
