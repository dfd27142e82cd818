#include "plan/explain_attention.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "config/load_config.h"
#include "plan/explain.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

/// ZAYA1 made small: 2 query heads of 8 channels and a key head, of a stream of 32.
RunConfig small(const std::vector<std::string>& keys = {}) {
  return parse_config(
      "[model]\nfamily = 'zaya'\nlayers = 3\nhidden_size = 32\nheads = 2\nkv_heads = 1\n"
      "head_dim = 8\nexperts = 4\nexpert_size = 16\nrouter_size = 8\nvocabulary_size = 64\n"
      "[data]\ncontext = 16\n[train]\nmicro_batch = 2\nglobal_batch = 4\nprecision = 'fp32'\n",
      "test", keys);
}

std::string text_of(const RunConfig& config) {
  return explain(config, plan_step(config, {.threads = 1}), {});
}

TEST(ExplainAttention, CountsASmallLayerAsByHand) {
  const std::vector<AttentionAccount> accounts = attention_accounts(small());
  ASSERT_EQ(accounts.size(), 3U);

  const AttentionAccount& compressed = accounts[0];
  EXPECT_EQ(compressed.kind, "compressed convolutional");
  EXPECT_EQ(compressed.heads, 2);
  EXPECT_EQ(compressed.kv_heads, 1);
  // Queries of 16 channels, keys of 8, two halves of values of 4, and 16 back to the stream.
  EXPECT_EQ(compressed.projection_flops, 2 * (16 + 8 + 4 + 4 + 16) * 32);
  // Two taps of 8 x 8 for each of three heads.
  EXPECT_EQ(compressed.convolution_flops, 2 * 3 * 2 * 8 * 8);
  // A token attends to 17 / 2 of the 16 on the average: products of scores and of values.
  EXPECT_EQ(compressed.score_flops, 2 * 2 * 16 * 17 / 2.0);
  EXPECT_EQ(compressed.cache_bytes_per_token, 4 * (8 + 8));
  // The last two queries and keys, and a row of the delayed half of the values.
  EXPECT_EQ(compressed.cache_constant_bytes, 4 * (2 * 16 + 2 * 8 + 4));

  const AttentionAccount& grouped = accounts[1];
  EXPECT_EQ(grouped.kind, "grouped-query");
  EXPECT_EQ(grouped.heads, 4);
  EXPECT_EQ(grouped.kv_heads, 2);
  EXPECT_EQ(grouped.projection_flops, 2 * (32 + 16 + 16 + 32) * 32);
  EXPECT_EQ(grouped.convolution_flops, 0);
  EXPECT_EQ(grouped.score_flops, 2 * 2 * 32 * 17 / 2.0);
  EXPECT_EQ(grouped.cache_bytes_per_token, 4 * (16 + 16));
  EXPECT_EQ(grouped.cache_constant_bytes, 0);

  const AttentionAccount& multi = accounts[2];
  EXPECT_EQ(multi.kind, "multi-head");
  EXPECT_EQ(multi.kv_heads, 4);
  EXPECT_EQ(multi.projection_flops, 2 * (32 + 32 + 32 + 32) * 32);
  EXPECT_EQ(multi.score_flops, grouped.score_flops);
  EXPECT_EQ(multi.cache_bytes_per_token, 4 * (32 + 32));
}

/// "a 8x compression of the KV cache vs full multi-head attention" (ZAYA1, appendix C).
TEST(ExplainAttention, OfZayaBaseHasThePapersRatio) {
  const RunConfig config =
      load_config(std::filesystem::path(TESSERA_SOURCE) / "configs/zaya-base.toml");
  const Json json = attention_json(config);
  ASSERT_EQ(json.size(), 3U);
  EXPECT_EQ(json[0]["heads"], 8);
  EXPECT_EQ(json[0]["cache_bytes_per_token"], 2 * 2 * 128 * 2) << "bf16";
  EXPECT_EQ(json[0]["cache_bytes_per_sequence"], 2 * (2 * (1024 + 256) + 128));
  EXPECT_EQ(json[0]["times_cache"], 1.0);
  EXPECT_EQ(json[1]["heads"], 16);
  EXPECT_EQ(json[1]["kv_heads"], 4);
  EXPECT_EQ(json[1]["times_cache"], 2.0);
  EXPECT_EQ(json[2]["kind"], "multi-head");
  EXPECT_EQ(json[2]["kv_heads"], 16);
  EXPECT_EQ(json[2]["times_cache"], 8.0);
  // The compression of queries halves scores and values.
  EXPECT_EQ(json[2]["score_flops_per_token"].get<double>(),
            2 * json[0]["score_flops_per_token"].get<double>());
}

TEST(ExplainAttention, PrintsTheTableThatIsDocumented) {
  const std::filesystem::path source(TESSERA_SOURCE);
  const std::string table = attention_table(load_config(source / "configs/zaya-base.toml"));
  EXPECT_THAT(read_file(source / "docs/models.md"), HasSubstr(table.substr(0, table.find('('))));
}

TEST(ExplainAttention, ComparesOnlyWithAttentionThatDivides) {
  EXPECT_EQ(attention_accounts(small({"model.hidden_size=36"})).size(), 1U);
  EXPECT_THAT(attention_table(small({"model.hidden_size=36"})),
              HasSubstr("hidden_size 36 is no multiple of the head size 8"));
  // Heads in groups of one: grouped-query attention is multi-head attention.
  const std::vector<AttentionAccount> ones = attention_accounts(small({"model.kv_heads=2"}));
  ASSERT_EQ(ones.size(), 2U);
  EXPECT_EQ(ones[1].kind, "multi-head");
  // Groups of three do not divide four heads.
  EXPECT_EQ(attention_accounts(small({"model.heads=3"})).size(), 2U);
}

TEST(ExplainAttention, StandsInTextAndJson) {
  const RunConfig config = small();
  EXPECT_THAT(text_of(config),
              AllOf(HasSubstr("compressed convolutional"), HasSubstr("208 B"),
                    HasSubstr("32 / 8 = 4 query heads"), HasSubstr("2 of them to a key head"),
                    HasSubstr("ZAYA1, appendix C"), HasSubstr("average over a context of 16")));
  const Json json = Json::parse(explain_json(config, plan_step(config, {.threads = 1})));
  EXPECT_EQ(json["attention"], Json(attention_json(config)));
  EXPECT_EQ(json["attention"][0]["flops_per_token"], 3072 + 768 + 544);
  EXPECT_DOUBLE_EQ(json["attention"][2]["times_flops"].get<double>(), 9280.0 / 4384);

  const RunConfig plain = small({"model.attention='grouped_query'", "data.context=32"});
  EXPECT_TRUE(attention_accounts(plain).empty());
  EXPECT_THAT(text_of(plain), Not(HasSubstr("query heads")));
  EXPECT_FALSE(
      Json::parse(explain_json(plain, plan_step(plain, {.threads = 1}))).contains("attention"));
}

}  // namespace
}  // namespace tessera
