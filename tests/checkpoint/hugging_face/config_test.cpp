#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/hugging_face/read_config.h"
#include "checkpoint/hugging_face/token_ids.h"
#include "checkpoint/hugging_face/write_config.h"
#include "support/error_of.h"
#include "support/hugging_face_folder.h"

namespace tessera::hugging_face {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::json;
using testing::small_llama_config;
using testing::small_olmoe_config;

ReadConfig read(const Json& json) { return read_config(json.dump(), "config.json"); }

std::string error(Json json, const std::function<void(Json&)>& change) {
  change(json);
  const std::string message = error_of([&] { read(json); });
  EXPECT_THAT(message, HasSubstr("config.json"));
  return message;
}

TEST(HuggingFaceConfig, FillsTheModel) {
  Json json = small_olmoe_config();
  json["clip_qkv"] = 4.5;
  json["norm_topk_prob"] = true;
  json["router_aux_loss_coef"] = 0.02;
  json["initializer_range"] = 0.03;
  const ReadConfig config = read(json);
  EXPECT_EQ(config.architecture->name, "OlmoeForCausalLM");
  EXPECT_THAT(config.notes, IsEmpty());
  const ModelConfig& model = config.model;
  EXPECT_EQ(model.router_z_coefficient, 0) << "a loss that the library does not have";
  EXPECT_EQ(model.family, Family::olmoe);
  EXPECT_EQ(model.vocabulary_size, 300);
  EXPECT_EQ(model.hidden_size, 16);
  EXPECT_EQ(model.layers, 2);
  EXPECT_EQ(model.heads, 2);
  EXPECT_EQ(model.experts, 3);
  EXPECT_EQ(model.experts_per_token, 2);
  EXPECT_EQ(model.expert_size, 8);
  EXPECT_EQ(model.feed_forward_size, 0);
  EXPECT_EQ(model.max_context, 64);
  EXPECT_EQ(model.clip_qkv, 4.5);
  EXPECT_TRUE(model.renormalise_weights);
  EXPECT_EQ(model.balance_coefficient, 0.02);
  EXPECT_EQ(model.balance_form, BalanceForm::pooled);
  EXPECT_EQ(model.initialization_deviation, 0.03);
  EXPECT_EQ(model.query_key_norm, QueryKeyNorm::projection);
  EXPECT_FALSE(model.tied_head);
}

TEST(HuggingFaceConfig, KeysOfBothVersionsSayTheSame) {
  const Json old_form = small_llama_config();
  Json new_form = old_form;
  new_form["rope_parameters"] = new_form["rope_scaling"];
  new_form["rope_parameters"]["rope_theta"] = new_form["rope_theta"];
  new_form.erase("rope_scaling");
  new_form.erase("rope_theta");
  Json older = old_form;  // the key's first name
  older["rope_scaling"]["type"] = older["rope_scaling"]["rope_type"];
  older["rope_scaling"].erase("rope_type");
  for (const Json& json : {old_form, new_form, older}) {
    const ModelConfig model = read(json).model;
    EXPECT_EQ(model.rope_theta, 500000);
    EXPECT_EQ(model.rope_scaling, RopeScaling::llama3);
    EXPECT_EQ(model.rope_factor, 8);
    EXPECT_EQ(model.rope_low_frequency_factor, 1);
    EXPECT_EQ(model.rope_high_frequency_factor, 4);
    EXPECT_EQ(model.rope_original_context, 8192);
  }
}

/// The sizes of a model of each class, with nothing that may be left out.
Json sizes_alone(const std::string& model_type) {
  Json json{{"model_type", model_type}, {"vocab_size", 300},         {"hidden_size", 1024},
            {"num_hidden_layers", 2},   {"num_attention_heads", 16}, {"intermediate_size", 8}};
  if (model_type == "olmoe") json["num_experts"] = 4;
  if (model_type == "mixtral") json["num_local_experts"] = 4;
  if (model_type == "olmoe" || model_type == "mixtral") json["num_experts_per_tok"] = 2;
  if (model_type == "zaya") {
    json.erase("intermediate_size");
    json.update({{"num_experts", 4}, {"moe_intermediate_size", 8}, {"router_hidden_size", 8}});
  }
  return json;
}

/// What the classes of transformers 5.24.0 take for keys that are left out.
TEST(HuggingFaceConfig, WhatIsLeftOutHasTheLibrarysDefault) {
  struct Defaults {
    const char* model_type;
    int64_t kv_heads, head_dim, max_context;
    double rope_theta, rotary_fraction, norm_epsilon, balance;
    bool tied, renormalises;
    int64_t bos, eos, pad;  // of a vocabulary that has them
  };
  const std::vector<Defaults> classes{
      {"olmo", 16, 64, 2048, 1e4, 1, 1e-5, 0, false, false, -1, 50279, 1},
      {"olmoe", 16, 64, 4096, 1e4, 1, 1e-5, 0.01, false, false, -1, 50279, 1},
      {"llama", 16, 64, 2048, 1e4, 1, 1e-6, 0, false, false, 1, 2, -1},
      {"mixtral", 8, 64, 131072, 1e6, 1, 1e-5, 0.001, false, true, 1, 2, -1},
      {"zaya", 2, 128, 131072, 5e6, 0.5, 1e-5, 0, true, false, 2, 106, 0}};
  for (const Defaults& expected : classes) {
    SCOPED_TRACE(expected.model_type);
    const ReadConfig config = read(sizes_alone(expected.model_type));
    const ModelConfig& model = config.model;
    EXPECT_EQ(model.kv_heads, expected.kv_heads);
    EXPECT_EQ(model.head_size(), expected.head_dim);
    EXPECT_EQ(model.max_context, expected.max_context);
    EXPECT_EQ(model.rope_theta, expected.rope_theta);
    EXPECT_EQ(model.rope_scaling, RopeScaling::none);
    EXPECT_EQ(model.rotary_fraction, expected.rotary_fraction);
    EXPECT_EQ(model.norm_epsilon, expected.norm_epsilon);
    EXPECT_EQ(model.tied_head, expected.tied);
    EXPECT_EQ(model.clip_qkv, 0);
    EXPECT_EQ(model.activation, Activation::silu);
    EXPECT_EQ(model.initialization_deviation, 0.02);
    EXPECT_EQ(model.renormalise_weights, expected.renormalises);
    if (model.mixture()) {
      EXPECT_EQ(model.balance_coefficient, expected.balance);
    }
    const int64_t known = expected.eos + 1;
    const Architecture& architecture = *config.architecture;
    EXPECT_EQ(default_token_id(architecture, "bos_token_id", known), expected.bos);
    EXPECT_EQ(default_token_id(architecture, "eos_token_id", known), expected.eos);
    EXPECT_EQ(default_token_id(architecture, "pad_token_id", known), expected.pad);
    EXPECT_EQ(default_token_id(architecture, "eos_token_id", expected.eos), -1)
        << "a token that the vocabulary does not have";
  }
}

/// The class has no default for what rope_parameters leaves out, but for the fraction: all.
TEST(HuggingFaceConfig, ZayasRotaryEmbeddingIsAsItsObjectSays) {
  const auto with = [](const Json& rope) {
    Json json = sizes_alone("zaya");
    json["rope_parameters"] = rope;
    return json;
  };
  const Json alone{{"hybrid", {{"rope_type", "default"}, {"rope_theta", 7.0}}}};
  EXPECT_EQ(read(with(alone)).model.rotary_fraction, 1);
  EXPECT_EQ(read(with(alone)).model.rope_theta, 7);
  Json both = alone;
  both["hybrid"]["partial_rotary_factor"] = 0.25;
  EXPECT_EQ(read(with(both)).model.rotary_fraction, 0.25);
  const auto keep = [](Json&) {};
  EXPECT_THAT(error(with(Json::object()), keep), HasSubstr("the key 'hybrid' is missing"));
  EXPECT_THAT(error(with({{"hybrid", {{"rope_type", "default"}}}}), keep),
              HasSubstr("rope_parameters.hybrid: the key 'rope_theta' is missing"));
}

TEST(HuggingFaceConfig, WhatTesseraDoesNotHaveIsNamedWithItsValue) {
  const auto llama = [](const char* key, const Json& value) {
    return error(small_llama_config(), [&](Json& json) { json[key] = value; });
  };
  EXPECT_THAT(llama("architectures", {"GemmaForCausalLM"}),
              HasSubstr("the architecture 'GemmaForCausalLM' (model_type 'llama') is not known; "
                        "known are OlmoForCausalLM"));
  EXPECT_THAT(llama("architectures", "LlamaForCausalLM"), HasSubstr("a list of one name"));
  EXPECT_THAT(llama("model_type", "mixtral"), HasSubstr("contradicts model_type 'mixtral'"));
  EXPECT_THAT(llama("attention_bias", true), HasSubstr("'attention_bias' is true"));
  EXPECT_THAT(llama("mlp_bias", true), HasSubstr("'mlp_bias' is true"));
  EXPECT_THAT(llama("mlp_bias", 1), HasSubstr("'mlp_bias' is 1; expected true or false"));
  EXPECT_THAT(llama("hidden_act", "gelu"), HasSubstr("'hidden_act' is \"gelu\""));
  EXPECT_THAT(llama("pretraining_tp", 2), HasSubstr("'pretraining_tp' is 2"));
  EXPECT_THAT(llama("partial_rotary_factor", 0.5), HasSubstr("'partial_rotary_factor' is 0.5"));
  EXPECT_THAT(llama("is_causal", false), HasSubstr("'is_causal' is false; expected true"));
  EXPECT_THAT(llama("transformers_weights", "other.safetensors"),
              HasSubstr("'transformers_weights' is \"other.safetensors\"; expected null"));
  EXPECT_THAT(llama("pruned_heads", {{"0", {1}}}), HasSubstr("expected no pruned heads"));
  EXPECT_THAT(llama("sliding_window", 4096), HasSubstr("'sliding_window' is 4096"));
  EXPECT_THAT(llama("layer_types", {"full_attention", "sliding_attention"}),
              HasSubstr("'layer_types'"));
  EXPECT_THAT(llama("quantization_config", {{"bits", 4}}), HasSubstr("not quantised"));
  EXPECT_THAT(llama("rope_scaling", {{"type", "linear"}, {"factor", 2}}),
              HasSubstr("the rope type is 'linear'; supported are 'default' and 'llama3'"));
  EXPECT_THAT(llama("rope_scaling", {{"type", "llama3"}, {"factor", 2}}),
              HasSubstr("rope_scaling: the key 'low_freq_factor' is missing"));
  EXPECT_THAT(llama("rope_scaling", {{"rope_type", "default"}, {"beta_fast", 2}}),
              HasSubstr("the key 'beta_fast' is not known"));
}

TEST(HuggingFaceConfig, ContradictionsAreNamed) {
  const auto olmoe = [](const char* key, const Json& value) {
    return error(small_olmoe_config(), [&](Json& json) { json[key] = value; });
  };
  EXPECT_THAT(olmoe("num_attention_heads", 3),
              HasSubstr("num_attention_heads (3) does not divide hidden_size (16)"));
  EXPECT_THAT(olmoe("num_key_value_heads", 4),
              HasSubstr("num_key_value_heads (4) does not divide num_attention_heads (2)"));
  EXPECT_THAT(olmoe("num_experts_per_tok", 4),
              HasSubstr("num_experts_per_tok (4) is larger than num_experts (3)"));
  EXPECT_THAT(olmoe("num_local_experts", 4),
              HasSubstr("num_experts is 3 and num_local_experts is 4"));
  EXPECT_THAT(olmoe("head_dim", 4), HasSubstr("head_dim is 4"));
  EXPECT_THAT(olmoe("rope_parameters", {{"rope_type", "default"}, {"rope_theta", 5.0}}),
              HasSubstr("rope_parameters: rope_theta is 10000 beside this object, and 5 in it"));
}

TEST(HuggingFaceConfig, ValuesOutOfRangeAreNamed) {
  const auto olmoe = [](const char* key, const Json& value) {
    return error(small_olmoe_config(), [&](Json& json) { json[key] = value; });
  };
  for (const Json& value :
       {Json(0), Json(-1), Json(1.5), Json("16"), Json(uint64_t{1} << 63), Json::array({16})}) {
    EXPECT_THAT(olmoe("hidden_size", value),
                HasSubstr("'hidden_size' is " + value.dump() + "; expected a whole number from 1"));
  }
  EXPECT_THAT(olmoe("hidden_size", nullptr), HasSubstr("the key 'hidden_size' is missing"));
  EXPECT_THAT(olmoe("rms_norm_eps", "small"), HasSubstr("'rms_norm_eps' is \"small\""));
  EXPECT_THAT(olmoe("rope_theta", 0), HasSubstr("'rope_theta' is 0; expected a number above 0"));
  EXPECT_THAT(olmoe("rms_norm_eps", 0),
              HasSubstr("'rms_norm_eps' is 0; expected a number above 0"));
  EXPECT_THAT(olmoe("clip_qkv", 0), HasSubstr("'clip_qkv' is 0; expected a number above 0"));
  EXPECT_THAT(olmoe("num_hidden_layers", 65536), HasSubstr("from 1 to 4096"));
  EXPECT_THAT(olmoe("num_experts", 65536), HasSubstr("from 1 to 4096"));
  EXPECT_THAT(error(small_llama_config(),
                    [](Json& json) {
                      json["num_attention_heads"] = 65536;
                      json["head_dim"] = 1 << 24;
                    }),
              HasSubstr("num_attention_heads (65536) * head_dim (16777216) is above"));
  EXPECT_THAT(error_of([] { read_config("{", "config.json"); }), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of([] { read_config("[]", "config.json"); }), HasSubstr("no JSON object"));
  EXPECT_THAT(error_of([] { read_config(std::string(100000, '['), "config.json"); }),
              HasSubstr("nested deeper"));
}

TEST(HuggingFaceConfig, TokenIdsAreTokens) {
  for (const Json& value : {Json("2"), Json(-2), Json(300), Json(1.5), Json(true), Json::array(),
                            Json({2, "3"}), Json({2, 300})}) {
    EXPECT_THAT(error(small_olmoe_config(), [&](Json& json) { json["eos_token_id"] = value; }),
                HasSubstr("'eos_token_id' is " + value.dump() + "; expected null or -1"));
  }
  Json json = small_olmoe_config();
  json["eos_token_id"] = {0, 299};
  json["pad_token_id"] = nullptr;
  EXPECT_THAT(read(json).notes, IsEmpty());
  json["pad_token_id"] = -1;  // in the first Llama's files
  EXPECT_NO_THROW(read(json));
}

TEST(HuggingFaceConfig, KeysOfDerivedModelsHaveTheirNeutralValue) {
  const auto llama = [](const char* key, const Json& value) {
    return error(small_llama_config(), [&](Json& json) { json[key] = value; });
  };
  EXPECT_THAT(llama("logits_scaling", 8), HasSubstr("'logits_scaling' is 8; expected 1"));
  EXPECT_THAT(llama("residual_multiplier", 0.2), HasSubstr("'residual_multiplier' is 0.2"));
  EXPECT_THAT(llama("embedding_multiplier", 12), HasSubstr("'embedding_multiplier' is 12"));
  EXPECT_THAT(llama("attention_multiplier", 0.1), HasSubstr("'attention_multiplier' is 0.1"));
  EXPECT_THAT(llama("attn_logit_softcapping", 50.0), HasSubstr("'attn_logit_softcapping'"));
  EXPECT_THAT(llama("final_logit_softcapping", 30.0), HasSubstr("'final_logit_softcapping'"));
  EXPECT_THAT(llama("n_shared_experts", 1), HasSubstr("'n_shared_experts' is 1; expected 0"));
  Json json = small_llama_config();
  for (const char* key : {"qk_layernorm", "use_qk_norm", "qkv_bias", "use_bias"}) {
    EXPECT_THAT(llama(key, true), HasSubstr(std::string("'") + key + "' is true; expected false"));
    json[key] = false;
  }
  json["logits_scaling"] = 1.0;
  json["attn_logit_softcapping"] = nullptr;
  EXPECT_THAT(read(json).notes, IsEmpty());
}

TEST(HuggingFaceConfig, ALossOfEachLayerBecomesThePooledOne) {
  ModelConfig model = read(small_olmoe_config()).model;  // 2 of 3 experts a token, 3 layers
  model.layers = 3;
  model.balance_coefficient = 0.01;
  model.balance_form = BalanceForm::per_layer;
  const Architecture& architecture = architecture_of(model);
  const ConfigSurroundings surroundings{.max_context = 64, .dtype = "bfloat16"};
  const std::string text = write_config(architecture, model, surroundings);
  // In balance: 3 layers * 0.01 = coefficient * 2 experts a token.
  EXPECT_DOUBLE_EQ(Json::parse(text)["router_aux_loss_coef"].get<double>(), 0.015);
  EXPECT_EQ(write_config(architecture, read_config(text, "written").model, surroundings), text);
}

TEST(HuggingFaceConfig, AWindowThatNoSequenceReachesIsKept) {
  Json json = small_olmoe_config();
  json["sliding_window"] = 64;
  const std::string original = json.dump();
  const ReadConfig config = read(json);
  const auto window = [&](int64_t max_context) {
    const std::string text =
        write_config(*config.architecture, config.model,
                     {.max_context = max_context, .dtype = "bfloat16", .original = original});
    read_config(text, "written");
    return Json::parse(text).value("sliding_window", Json());
  };
  EXPECT_EQ(window(64), 64);
  EXPECT_EQ(window(16), 64) << "longer sequences would be read otherwise than before";
  EXPECT_TRUE(window(128).is_null()) << "a run with longer sequences attended to all of them";
}

TEST(HuggingFaceConfig, RoutingInTurnIsNotExported) {
  ModelConfig model = read(small_olmoe_config()).model;
  model.forced_uniform_routing = true;
  EXPECT_THAT(error_of([&] { architecture_of(model); }),
              HasSubstr("model.forced_uniform_routing is true, it has false"));
}

TEST(HuggingFaceConfig, WhatIsWrittenReadsBackTheSame) {
  Json mixtral = small_olmoe_config();
  mixtral["architectures"] = {"MixtralForCausalLM"};
  mixtral["model_type"] = "mixtral";
  mixtral["num_local_experts"] = mixtral["num_experts"];
  mixtral.erase("num_experts");
  mixtral["head_dim"] = 12;
  for (const Json& json : {small_olmoe_config(), small_llama_config(), mixtral}) {
    const ReadConfig before = read(json);
    const std::string text =
        write_config(*before.architecture, before.model,
                     {.max_context = before.model.max_context,
                      .dtype = "bfloat16",
                      .original = R"({"bos_token_id": 1, "eos_token_id": [2, 3], "pad_token_id": -1,
                         "output_router_logits": true})"});
    const ReadConfig after = read_config(text, "written");
    EXPECT_EQ(after.notes, before.notes);
    EXPECT_EQ(after.architecture, before.architecture);
    const std::string again = write_config(
        *after.architecture, after.model,
        {.max_context = after.model.max_context, .dtype = "bfloat16", .original = text});
    EXPECT_EQ(again, text);
    EXPECT_EQ(after.model.rope_scaling, before.model.rope_scaling);
    EXPECT_EQ(after.model.rope_theta, before.model.rope_theta);
    EXPECT_EQ(after.model.head_size(), before.model.head_size());
    const Json written = Json::parse(text);
    EXPECT_EQ(written["eos_token_id"], Json({2, 3}));
    EXPECT_EQ(written["bos_token_id"], 1);
    EXPECT_TRUE(written["pad_token_id"].is_null());
    EXPECT_EQ(written["torch_dtype"], "bfloat16");
    EXPECT_EQ(Json::parse(write_generation_config(text)),
              Json({{"bos_token_id", 1}, {"eos_token_id", {2, 3}}}));
  }
}

}  // namespace
}  // namespace tessera::hugging_face
