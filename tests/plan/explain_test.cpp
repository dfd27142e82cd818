#include "plan/explain.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/usable_memory.h"
#include "config/load_config.h"
#include "config/mesh_of.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

/// A small dense model; a step has two micro-batches on each of two data-parallel ranks.
RunConfig dense(const std::vector<std::string>& keys = {}) {
  return parse_config(
      "[model]\nfamily = 'llama'\nlayers = 2\nhidden_size = 32\nheads = 4\nkv_heads = 2\n"
      "feed_forward_size = 48\nvocabulary_size = 64\n"
      "[data]\ncontext = 16\n[train]\nmicro_batch = 2\nglobal_batch = 8\nprecision = 'fp32'\n",
      "test", keys);
}

StepPlan plan_of(const RunConfig& config, int ranks, int rank = 0) {
  return plan_step(config, {.threads = 1}, {mesh_of(config, ranks), rank});
}

Json json_of(const RunConfig& config, int ranks, int rank = 0) {
  return Json::parse(explain_json(config, plan_of(config, ranks, rank)));
}

TEST(Explain, CountsOneRingOfTheGradientsForDataParallelism) {
  const Json json = json_of(dense(), 4);
  int64_t gradients = 0;
  const StepPlan plan = plan_of(dense(), 4);
  for (const ParameterUnit& unit : plan.programs.model.parameters.units()) {
    gradients += 4 * unit.elements;
  }
  // 2 (n - 1) / n of the gradients in f32 once a step, and the sum of the losses.
  const Json& sent = json["totals"]["sent_bytes_per_step"];
  EXPECT_EQ(sent.size(), 1U);
  EXPECT_NEAR(sent["data"].get<double>(), 2 * 3 / 4.0 * static_cast<double>(gradients), 64);
  EXPECT_EQ(json["layout"]["ranks"], 4);
  EXPECT_EQ(json["layout"]["axes"]["data"], 4);
}

TEST(Explain, ShowsTheLevelsOfTheNetwork) {
  const RunConfig config = dense({"parallel.tensor=2", "parallel.levels=[2, 2]"});
  const std::string text = explain(config, plan_of(config, 8), {});
  EXPECT_THAT(text, HasSubstr("level  ranks  axes within it\n"
                              "pair       2  tensor\n"
                              "node       4  tensor x data.1\n"
                              "all        8  tensor x data.1 x data.2\n"));
  const Json levels = json_of(config, 8)["layout"]["levels"];
  ASSERT_EQ(levels.size(), 3U);
  EXPECT_EQ(levels[1], (Json{{"name", "node"},
                             {"ranks", 4},
                             {"axes", {"tensor", "data.1"}},
                             {"expert_axes", {"expert_data.0", "expert_data.1"}}}));
  EXPECT_THAT(explain(dense(), plan_of(dense(), 1), {}), Not(HasSubstr("axes within it")));
}

TEST(Explain, SaysWhereARunDoesNotFit) {
  EXPECT_EQ(explain_fit(dense(), plan_of(dense(), 1)), "");
  const RunConfig huge = dense({"model.hidden_size=65536", "model.vocabulary_size=1000000"});
  EXPECT_THAT(explain_fit(huge, plan_of(huge, 1)),
              AllOf(HasSubstr(usable_memory().text()), HasSubstr("the run does not fit")));
  EXPECT_THAT(explain_fit(huge, plan_of(huge, 4)), HasSubstr("4 ranks like this one take "));
}

TEST(Explain, ShowsEachPhase) {
  const RunConfig config = dense({"optimizer.warmup_steps=0",
                                  "train.phases=[{steps = 10}, {name = \"long\", steps = 5, "
                                  "context = 32, rope_theta = 1e6, learning_rate = 2e-4, "
                                  "minimum_learning_rate = 1e-4, schedule = \"linear\"}]",
                                  "train.steps=15"});
  const auto needs = [](const RunConfig& of) { return phase_needs(plan_of(of, 1)); };
  const std::vector<PhaseAccount> accounts = phase_accounts(config, needs);
  const std::string table = phases_table(accounts, int64_t{3} << 20);
  EXPECT_THAT(table, AllOf(HasSubstr("phase 1"), HasSubstr("1 to 10"), HasSubstr("11 to 15"),
                           HasSubstr("1000000"), HasSubstr("to 0.0001, linear"),
                           HasSubstr("the run reserves 3.0 MiB for all phases")));
  const RunConfig& second = accounts[1].phase.config;
  const Json json = Json::parse(explain_json(second, plan_of(second, 1), nullptr, accounts));
  ASSERT_EQ(json["phases"].size(), 2U);
  const Json& last = json["phases"][1];
  EXPECT_EQ(last["name"], "long");
  EXPECT_EQ(last["first_step"], 11);
  EXPECT_EQ(last["tokens"], 5 * 8 * 32);
  EXPECT_NEAR(last["first_learning_rate"].get<double>(), 2e-4 - 1e-4 / 5, 1e-12);
  EXPECT_NEAR(last["last_learning_rate"].get<double>(), 1e-4, 1e-12);
  EXPECT_GT(last["flops_per_step"], json["phases"][0]["flops_per_step"]);
  EXPECT_EQ(last["peak_bytes"], json["totals"]["peak_bytes"]);
}

/// Many phases of few kinds are planned once for each kind.
TEST(Explain, PlansTheSameWorkOfPhasesOnce) {
  std::string phases;
  for (int i = 0; i < 300; ++i) {
    phases += fmt::format("{{steps = 1, context = {}, global_batch = {}}}, ", i % 3 == 0 ? 32 : 16,
                          i % 2 == 0 ? 8 : 4);
  }
  const RunConfig config =
      dense({"optimizer.warmup_steps=0", "train.phases=[" + phases + "]", "train.steps=300"});
  int planned = 0;
  const auto needs = [&](const RunConfig& of) {
    ++planned;
    return phase_needs(plan_of(of, 1));
  };
  const std::vector<PhaseAccount> accounts = phase_accounts(config, needs);
  EXPECT_EQ(planned, 4);
  ASSERT_EQ(accounts.size(), 300U);
  for (size_t i = 0; i < 12; ++i) {
    const PhaseNeeds expected = phase_needs(plan_of(accounts[i].phase.config, 1));
    EXPECT_EQ(accounts[i].needs.step_flops, expected.step_flops) << i;
    EXPECT_EQ(accounts[i].needs.memory_bytes, expected.memory_bytes) << i;
  }
}

TEST(Explain, SaysWhatARankHoldsAndHowItsValuesLie) {
  const Json one = json_of(dense(), 1);
  const Json half = json_of(dense({"parallel.context=2"}), 4, 3);
  EXPECT_TRUE(one["totals"]["sent_bytes_per_step"].empty());
  EXPECT_EQ(half["layout"]["rank"], 3);
  EXPECT_EQ(half["totals"]["parameters"], one["totals"]["parameters"]);
  EXPECT_EQ(half["totals"]["parameters_on_rank"], one["totals"]["parameters"]);
  EXPECT_EQ(half["totals"]["tokens_per_step"], 128) << "of all ranks";
  const Json split = json_of(dense({"parallel.tensor=2"}), 4);
  EXPECT_EQ(split["totals"]["tokens_per_step"], 128);
  EXPECT_DOUBLE_EQ(split["totals"]["flops_per_token"].get<double>(),
                   one["totals"]["flops_per_token"].get<double>());
  EXPECT_GT(half["totals"]["sent_bytes_per_step"]["context"], 0);
  bool zigzag = false;
  for (const Json& operation : half["operations"]) {
    for (const Json& type : operation["types"]) {
      zigzag = zigzag || type.get<std::string>().find("zigzag") != std::string::npos;
    }
  }
  EXPECT_TRUE(zigzag);
}

/// Two ranks have 40 and 25 rows of the vocabulary, and 32 and 19 inner channels.
TEST(Explain, SaysWhichOptimizerUpdatesWhat) {
  const RunConfig config = dense({"optimizer.name='muon'"});
  const StepPlan plan = plan_of(config, 1);
  const std::string text = explain(config, plan, {});
  EXPECT_THAT(text, AllOf(HasSubstr("updated by"),
                          HasSubstr("attention.query, attention.key, attention.value"),
                          HasSubstr("newton_schulz")));
  const Json document = json_of(config, 1);
  for (const Json& held : document.at("held")) {
    const auto name = held["name"].get<std::string>();
    if (!held.contains("updated_by")) continue;  // inputs
    const bool hidden = name.starts_with("layers.") && name.find("norm") == std::string::npos;
    EXPECT_EQ(held["updated_by"], hidden ? "muon" : "adamw") << name;
  }
  EXPECT_THAT(explain(dense(), plan_of(dense(), 1), {}), Not(HasSubstr("updated by")));

  // By hand: query and output [32, 32], key and value [16, 32], and three of [48, 32], of 2 layers.
  const auto step = [](double n, double m) { return 3 * n * n * m + n * n * n; };
  EXPECT_DOUBLE_EQ(json_of(config, 1)["totals"]["update_flops"].get<double>(),
                   2 * 5 * (2 * step(32, 32) + 2 * step(16, 32) + 3 * step(32, 48)));
  EXPECT_THAT(text, HasSubstr("FLOPs a step, Newton-Schulz"));

  // Muon keeps one state where AdamW keeps two.
  int64_t matrices = 0;
  for (const ParameterUnit& unit : plan.programs.model.parameters.units()) {
    if (unit.matrices) matrices += unit.elements;
  }
  EXPECT_EQ(plan_of(dense(), 1).memory.kept_bytes - plan.memory.kept_bytes, 4 * matrices);
}

TEST(Explain, OfUnevenPiecesAddsUpToTheModel) {
  std::vector<std::string> keys{"model.vocabulary_size=65", "model.feed_forward_size=51"};
  const Json one = json_of(dense(keys), 1)["totals"];
  keys.emplace_back("parallel.tensor=2");
  const Json first = json_of(dense(keys), 2, 0)["totals"];
  const Json second = json_of(dense(keys), 2, 1)["totals"];
  const auto both = [&](const char* number) {
    return first[number].get<double>() + second[number].get<double>();
  };
  const int64_t norms = int64_t{5} * 32;  // which both ranks have
  EXPECT_EQ(both("parameters_on_rank"), one["parameters"].get<double>() + norms);
  const int64_t more = (2 * (40 - 25) + 2 * 3 * (32 - 19)) * 32;
  EXPECT_EQ(
      first["parameters_on_rank"].get<int64_t>() - second["parameters_on_rank"].get<int64_t>(),
      more);
  EXPECT_DOUBLE_EQ(both("flops_per_token") / 2, one["flops_per_token"].get<double>());
}

/// A mixture of three layers, on 2 tensor x 2 data and 4 expert.
RunConfig mixture() {
  return parse_config(
      "[model]\nfamily = 'olmoe'\nlayers = 3\nhidden_size = 32\nheads = 4\nkv_heads = 4\n"
      "experts = 8\nexperts_per_token = 2\nexpert_size = 16\nvocabulary_size = 65\n"
      "[data]\ncontext = 16\n[train]\nmicro_batch = 2\nglobal_batch = 8\nprecision = 'fp32'\n"
      "[parallel]\ntensor = 2\nexpert = 4\nexpert_exchange = 'all_to_all'\n",
      "test", {});
}

/// The texts between backquotes in the first column of the table of types.
std::vector<std::string> documented_types() {
  std::ifstream page(std::filesystem::path(TESSERA_SOURCE) / "docs/parallelism.md");
  std::vector<std::string> texts;
  bool in_table = false;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("| text | the ranks of the axis have |")) in_table = true;
    if (!line.starts_with("|")) in_table = false;
    if (!in_table) continue;
    const std::string cell = line.substr(0, line.find('|', 1));
    for (size_t begin = cell.find('`'); begin != std::string::npos;) {
      const size_t end = cell.find('`', begin + 1);
      texts.push_back(cell.substr(begin + 1, end - begin - 1));
      begin = cell.find('`', end + 1);
    }
  }
  return texts;
}

TEST(Explain, PrintsTheTextsOfTypesThatAreDocumented) {
  const RunConfig zigzag = dense({"parallel.context=2", "train.micro_batch=1"});
  const ExplainOptions options{.all_layers = true, .types = true};
  const RunConfig shared = dense({"shard.optimizer='all'", "model.vocabulary_size=384"});
  const std::string printed = explain(zigzag, plan_of(zigzag, 4), options) +
                              explain(shared, plan_of(shared, 2), options) +
                              explain(mixture(), plan_of(mixture(), 4), options);
  const std::vector<std::string> texts = documented_types();
  EXPECT_EQ(texts.size(), 9U);
  for (const std::string& text : texts) EXPECT_THAT(printed, HasSubstr(text));
  EXPECT_THAT(printed, AllOf(HasSubstr("expert: varying (dim 0, tokens)"),
                             Not(HasSubstr("tokens that are")), Not(HasSubstr("axis 0"))));
}

/// The sum by kind is all that is reserved, and each key of [shard] changes its own kind.
TEST(Explain, SaysWhatTheMemoryOfARankIsFor) {
  const auto memory = [](std::vector<std::string> keys, int rank = 0) {
    keys.insert(keys.end(),
                {"train.precision='bf16'", "parallel.levels=[2, 2]", "model.hidden_size=64",
                 "model.feed_forward_size=256", "model.kv_heads=4", "model.vocabulary_size=1024"});
    const Json json = json_of(dense(keys), 4, rank);
    int64_t sum = 0;
    for (const auto& [kind, bytes] : json["memory"].items()) {
      EXPECT_GE(bytes, 0) << kind;
      sum += bytes.get<int64_t>();
    }
    EXPECT_EQ(json["memory"].size(), 6U);
    EXPECT_EQ(sum, json["totals"]["peak_bytes"]);
    // Inputs are used again in the backward pass too, but no node makes them.
    const int64_t inputs_of_backward =
        json["totals"]["saved_bytes"].get<int64_t>() - json["memory"]["activations"].get<int64_t>();
    EXPECT_GE(inputs_of_backward, 0);
    EXPECT_LE(inputs_of_backward, json["totals"]["input_bytes"].get<int64_t>());
    return json["memory"];
  };
  // 4 units of 65536 matrix elements in bf16, and 320 of norms in f32.
  constexpr int64_t kMatrices = 4 * 65536, kNorms = 320;
  const Json whole = memory({});
  EXPECT_EQ(whole["weights"], 2 * kMatrices + 4 * kNorms);
  EXPECT_EQ(whole["second_copies"], 0);
  EXPECT_EQ(whole["gradients"], 4 * (kMatrices + kNorms));
  EXPECT_EQ(whole["optimizer"], 12 * kMatrices + 8 * kNorms);
  EXPECT_GT(whole["activations"], 0);
  EXPECT_GT(whole["buffers"], 0);

  Json cut = memory({"shard.optimizer='all'"});
  EXPECT_EQ(cut["weights"], whole["weights"]);
  EXPECT_EQ(cut["gradients"], whole["gradients"]);
  EXPECT_LT(cut["optimizer"], whole["optimizer"].get<int64_t>() / 3);
  const std::vector<std::string> zero_3{"shard.optimizer='all'", "shard.gradients='all'",
                                        "shard.weights='all'"};
  cut = memory(zero_3);
  EXPECT_LT(cut["weights"], whole["weights"].get<int64_t>() / 3);
  EXPECT_LT(cut["gradients"], whole["gradients"].get<int64_t>() / 3);
  EXPECT_EQ(cut["second_copies"], 0);

  std::vector<std::string> copies = zero_3;
  copies.insert(copies.end(), {"shard.secondary='pair'", "shard.secondary_wire='int8'",
                               "shard.gradients_wire='int4'"});
  const Json with_copies = memory(copies);
  EXPECT_GE(with_copies["second_copies"], kMatrices / 2 + kMatrices / 2 / 256 * 4);
  EXPECT_LT(with_copies["second_copies"], kMatrices / 2 + kMatrices / 2 / 256 * 4 + 4 * kNorms);
  EXPECT_EQ(with_copies["gradients"], cut["gradients"]);
  copies.emplace_back("shard.error_feedback=0.8");
  EXPECT_EQ(memory(copies)["gradients"], cut["gradients"].get<int64_t>() + 4 * kMatrices)
      << "errors of whole units";

  const RunConfig config = dense();
  EXPECT_THAT(explain(config, plan_of(config, 1), {}),
              AllOf(HasSubstr("memory for"), HasSubstr("second copies"),
                    HasSubstr("all that is reserved")));
}

TEST(Explain, ShowsTypesAndTheLayoutWhereTheyAreAsked) {
  const RunConfig config = dense({"parallel.context=2"});
  const StepPlan plan = plan_of(config, 4, 1);
  const std::string types = explain(config, plan, {.types = true});
  EXPECT_THAT(types, AllOf(HasSubstr("rank 1 of 4 (2 context x 2 data)"), HasSubstr("zigzag"),
                           HasSubstr("sent a step over context"), HasSubstr("all_gather")));
  EXPECT_THAT(types, AllOf(HasSubstr("~t i, "), HasSubstr("retype")));
  EXPECT_THAT(explain(config, plan, {}), AllOf(HasSubstr("main gradient"), Not(HasSubstr("~t i, ")),
                                               Not(HasSubstr("retype"))));
  EXPECT_THAT(explain(dense(), plan_of(dense(), 1), {}),
              AllOf(Not(HasSubstr("rank ")), Not(HasSubstr("sent"))));
}

}  // namespace
}  // namespace tessera
