#include <gtest/gtest.h>

#include "config/load_config.h"
#include "model/model.h"

namespace tessera {
namespace {

/// A number as its source prints it: exact, or to half of the last digit given.
struct Count {
  double value = 0;
  double error = 0;
};

/// "46.7 billion" is billions(46.7, 0.1).
Count billions(double value, double last_digit) { return {value * 1e9, last_digit * 1e9 / 2}; }

/// A shipped configuration and what its model's authors say of it.
struct Published {
  std::string file;
  Count parameters;
  Count active;
  bool with_embedding = true;  ///< whether both count embedding and head
};

/// Exact for the models whose published weights have exactly our tensors; Mula as rounded in
/// Optimus' Table 1; the others of MegaScale-MoE's Table 2, which gives shapes alone, as rounded in
/// the models' own reports. ZAYA1's report says 8.3 billion and "approximately 760M", which are
/// without the embedding (section VI).
std::vector<Published> published() {
  return {
      {"olmo-1b", {1176764416}, {1176764416}},
      {"olmoe-1b-7b", {6919161856}, billions(1.3, 0.1)},
      {"llama-3-8b", {8030261248}, {8030261248}},
      {"llama-3.1-8b", {8030261248}, {8030261248}},
      {"llama-3-70b", {70553706496}, {70553706496}},
      {"llama-3-405b", {405853388800}, {405853388800}},
      {"mula-1b", billions(1.3, 0.1), billions(1.3, 0.1)},
      {"mula-7b-a1b", billions(6.9, 0.1), billions(1.3, 0.1)},
      {"mula-20b-a2b", billions(20, 1), billions(2.4, 0.1)},
      {"mula-100b-a7b", billions(100, 1), billions(7.6, 0.1)},
      {"mula-220b-a10b", billions(220, 1), billions(10, 1)},
      {"mixtral-8x7b", {46702792704}, billions(12.9, 0.1)},
      {"mixtral-8x22b", billions(141, 1), billions(39, 1)},
      {"megascale-352b", billions(352, 1), {}},  // the active ones are not published
      {"hunyuan-large", billions(389, 1), billions(52, 1)},
      {"phi-3.5-moe", billions(41.9, 0.1), billions(6.6, 0.1)},
      {"deepseek-moe-16b", billions(16.4, 0.1), billions(2.8, 0.1)},
      {"zaya-base", billions(8.3, 0.1), billions(0.76, 0.02), false},
  };
}

class PublishedCounts : public ::testing::TestWithParam<Published> {};

TEST_P(PublishedCounts, AreThoseOfTheShippedConfiguration) {
  const Published& known = GetParam();
  const RunConfig config =
      load_config(fs::path(TESSERA_SOURCE) / "configs" / (known.file + ".toml"));
  auto specs = model_parameters(config.model, DType::bf16).specs();
  if (!known.with_embedding) {
    std::erase_if(specs, [](const ParameterSpec& spec) {
      return spec.role == ParameterRole::embedding || spec.role == ParameterRole::head;
    });
  }
  int64_t parameters = 0;
  for (const ParameterSpec& spec : specs) parameters += spec.shape.elements();
  EXPECT_NEAR(static_cast<double>(parameters), known.parameters.value, known.parameters.error);
  if (known.active.value == 0) return;
  const int64_t active = active_parameters(config.model, specs);
  EXPECT_NEAR(static_cast<double>(active), known.active.value, known.active.error);
}

INSTANTIATE_TEST_SUITE_P(Shipped, PublishedCounts, ::testing::ValuesIn(published()),
                         [](const auto& info) {
                           std::string name = info.param.file;
                           for (char& letter : name) letter = std::isalnum(letter) ? letter : '_';
                           return name;
                         });

}  // namespace
}  // namespace tessera
