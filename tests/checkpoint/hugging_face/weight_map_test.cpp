#include "checkpoint/hugging_face/weight_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/error_of.h"

namespace tessera::hugging_face {
namespace {

using ::testing::HasSubstr;

ModelConfig small(Family family) {
  ModelConfig config = family_preset(family);
  config.layers = 2;
  config.hidden_size = 8;
  config.heads = 2;
  config.kv_heads = 1;
  config.vocabulary_size = 10;
  if (config.mixture()) {
    config.experts = 3;
    config.experts_per_token = 2;
    config.expert_size = 4;
  } else {
    config.feed_forward_size = 12;
  }
  return config;
}

/// Every element of one side occurs in exactly one segment.
template <typename Begin>
void expect_covered(const std::vector<NamedShape>& shapes,
                    const std::vector<std::vector<MappedSegment>>& segments, Begin begin) {
  ASSERT_EQ(shapes.size(), segments.size());
  for (size_t i = 0; i < shapes.size(); ++i) {
    int64_t position = 0;
    for (const MappedSegment& segment : segments[i]) {
      EXPECT_EQ(begin(segment), position) << shapes[i].name;
      position += segment.count;
    }
    EXPECT_EQ(position, shapes[i].shape.elements()) << shapes[i].name;
  }
}

TEST(WeightMap, EveryElementHasOnePlaceOnBothSides) {
  for (const Architecture& architecture : architectures()) {
    for (const ExpertNaming naming : {ExpertNaming::single, ExpertNaming::fused}) {
      const ModelConfig config = small(architecture.family);
      const WeightMap map = weight_map(architecture, config, naming);
      expect_covered(map.parameters, map.parameter_segments,
                     [](const MappedSegment& segment) { return segment.parameter_begin; });
      expect_covered(map.tensors, map.tensor_segments,
                     [](const MappedSegment& segment) { return segment.tensor_begin; });
    }
  }
}

TEST(WeightMap, FusedExpertsHaveTheGateAboveUp) {
  const Architecture& olmoe = *find_architecture("OlmoeForCausalLM");
  const WeightMap map = weight_map(olmoe, small(Family::olmoe), ExpertNaming::fused);
  const auto tensor =
      std::ranges::find(map.tensors, "model.layers.1.mlp.experts.gate_up_proj", &NamedShape::name);
  ASSERT_NE(tensor, map.tensors.end());
  EXPECT_EQ(tensor->shape, Shape({3, 8, 8}));
  std::vector<std::string> order;
  for (const MappedSegment& segment :
       map.tensor_segments[static_cast<size_t>(tensor - map.tensors.begin())]) {
    order.push_back(map.parameters[segment.parameter].name + "@" +
                    std::to_string(segment.parameter_begin / segment.count));
  }
  EXPECT_THAT(order, ::testing::ElementsAre("layers.1.experts.gate@0", "layers.1.experts.up@0",
                                            "layers.1.experts.gate@1", "layers.1.experts.up@1",
                                            "layers.1.experts.gate@2", "layers.1.experts.up@2"));
}

TEST(Architecture, EveryFamilyHasItsOwn) {
  for (const Architecture& architecture : architectures()) {
    EXPECT_EQ(architecture_of(family_preset(architecture.family)).name, architecture.name);
  }
}

TEST(Architecture, WhatNoneCanExpressIsNamed) {
  const auto error = [](Family family, const auto& change) {
    ModelConfig config = family_preset(family);
    change(config);
    return error_of([&] { architecture_of(config); });
  };
  EXPECT_THAT(error(Family::olmoe, [](auto& c) { c.activation = Activation::gelu; }),
              HasSubstr("OlmoeForCausalLM, but model.activation is geglu, it has swiglu"));
  EXPECT_THAT(error(Family::olmoe, [](auto& c) { c.norm = NormKind::layer; }),
              HasSubstr("model.norm is layer"));
  EXPECT_THAT(error(Family::olmoe, [](auto& c) { c.norm_weights = false; }),
              HasSubstr("norm_weights"));
  EXPECT_THAT(error(Family::olmoe, [](auto& c) { c.shared_experts = 1; }),
              HasSubstr("shared_experts"));
  EXPECT_THAT(error(Family::olmoe, [](auto& c) { c.head_dim = 64; }),
              HasSubstr("model.head_dim is 64, it has 128"));
  EXPECT_THAT(error(Family::mixtral, [](auto& c) { c.renormalise_weights = false; }),
              HasSubstr("model.renormalise_weights is false"));
  EXPECT_THAT(error(Family::mixtral, [](auto& c) { c.clip_qkv = 8; }),
              HasSubstr("model.clip_qkv is 8"));
  EXPECT_THAT(error(Family::mixtral, [](auto& c) { c.dense_layers = 1; }),
              HasSubstr("dense_layers"));
  EXPECT_THAT(error(Family::llama, [](auto& c) { c.query_key_norm = QueryKeyNorm::head; }),
              HasSubstr("model.query_key_norm is head"));
  EXPECT_THAT(error(Family::llama, [](auto& c) { c.rotary_fraction = 0.5; }),
              HasSubstr("model.rotary_fraction is 0.5, it has 1"));
  EXPECT_THAT(error(Family::olmo, [](auto& c) { c.norm_epsilon = 1e-6; }),
              HasSubstr("norm_epsilon"));
  const std::string both = error(Family::llama, [](auto& c) {
    c.activation = Activation::gelu;
    c.rotary_fraction = 0.5;
  });
  EXPECT_THAT(both, HasSubstr("geglu"));
  EXPECT_THAT(both, HasSubstr("rotary_fraction"));
}

TEST(WeightMap, TensorsAreCountedWithoutTheMap) {
  for (const Architecture& architecture : architectures()) {
    ModelConfig config = small(architecture.family);
    for (const bool tied : {false, true}) {
      config.tied_head = tied;
      for (const ExpertNaming naming : {ExpertNaming::single, ExpertNaming::fused}) {
        EXPECT_EQ(count_tensors(architecture, config, naming),
                  static_cast<int64_t>(weight_map(architecture, config, naming).tensors.size()));
      }
    }
  }
  ModelConfig huge = small(Family::olmoe);
  huge.layers = huge.experts = 1 << 16;
  EXPECT_GT(count_tensors(*find_architecture("OlmoeForCausalLM"), huge, ExpertNaming::single),
            int64_t{3} << 32);
}

}  // namespace
}  // namespace tessera::hugging_face
