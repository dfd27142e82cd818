#include "plan/account/step_account.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/sample_trace.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;
using Json = nlohmann::json;

const Ceilings kCeilings{
    .gemm_flops = 1e12, .memory_bytes = 1e11, .gemm_source = "a guess", .memory_source = "another"};

double sample_time(const GemmShape& shape) {
  if (shape == testing::sample_product()) return 0.8e-3;
  if (shape == testing::sample_sum()) return 0.6e-3;
  return 1e-6;
}

const AccountRow& row(const std::vector<AccountRow>& rows, const std::string& name) {
  for (const AccountRow& row : rows) {
    if (row.name == name) return row;
  }
  ADD_FAILURE() << "no row " << name;
  return rows.front();
}

std::vector<std::string> names(const std::vector<AccountRow>& rows) {
  std::vector<std::string> result;
  for (const AccountRow& row : rows) result.push_back(row.name);
  return result;
}

TEST(StepAccount, AddsUpByOperationBlockAndPass) {
  const StepAccount account = account_for(testing::sample_trace(), kCeilings);
  EXPECT_EQ(account.step, 7);
  EXPECT_NEAR(account.idle_seconds, 0.001, 1e-12);
  // Neither what is done again nor recomputed.
  EXPECT_DOUBLE_EQ(account.useful_flops, 1.9e9);
  const AccountRow& linear = row(account.operations, "linear");
  EXPECT_EQ(linear.calls, 2);
  EXPECT_NEAR(linear.seconds, 0.003, 1e-12);
  EXPECT_DOUBLE_EQ(linear.flops, 1.5e9);
  EXPECT_DOUBLE_EQ(linear.bytes, 6e6);
  EXPECT_EQ(account.operations.front().name, "linear");
  const AccountRow& attention = row(account.blocks, "attention");
  EXPECT_EQ(attention.calls, 3);
  EXPECT_NEAR(attention.seconds, 0.005, 1e-12);
  // What ran, which the tiles of attention make more than it states.
  EXPECT_DOUBLE_EQ(attention.flops, 2e9 + 200 * 2 * 64 * 64 * 64);
  EXPECT_NEAR(row(account.phases, "backward").seconds, 0.002, 1e-12);
  EXPECT_NEAR(row(account.phases, "step").seconds, 0.002, 1e-12);
}

TEST(StepAccount, EveryListAndTheIdleTimeMakeTheWholeStep) {
  for (const bool measured : {false, true}) {
    const StepAccount account = account_for(testing::sample_trace(), kCeilings,
                                            measured ? ProductTimer(sample_time) : ProductTimer());
    for (const auto* rows :
         {&account.operations, &account.blocks, &account.phases, &account.parts}) {
      double seconds = account.idle_seconds;
      for (const AccountRow& row : *rows) seconds += row.seconds;
      EXPECT_NEAR(seconds, account.seconds, 1e-12);
    }
  }
}

TEST(StepAccount, ProductsAloneAreTakenOutOfTheirOperations) {
  int timed = 0;
  const StepAccount account =
      account_for(testing::sample_trace(), kCeilings, [&](const GemmShape& shape) {
        ++timed;
        return sample_time(shape);
      });
  EXPECT_EQ(timed, 3) << "each distinct product is timed once";
  // 0.8 + 200 · 0.001 + 3 · 0.6 ms
  EXPECT_NEAR(account.alone_seconds, 2.8e-3, 1e-12);
  EXPECT_THAT(names(account.parts),
              UnorderedElementsAre("matrix products at stand-alone speed",
                                   "rest of the operations with matrix products",
                                   "operations without matrix products", "data", "optimizer"));
  EXPECT_NEAR(row(account.parts, "matrix products at stand-alone speed").seconds, 2.8e-3, 1e-12);
  EXPECT_NEAR(row(account.parts, "rest of the operations with matrix products").seconds, 3.2e-3,
              1e-12);
  EXPECT_NEAR(row(account.operations, "linear").alone_seconds, 1.4e-3, 1e-12);
  ASSERT_EQ(account.products.size(), 3U);
  EXPECT_EQ(account.products[0].product, (GemmRuns{testing::sample_sum(), 3}));
  EXPECT_EQ(account.products[2].product, (GemmRuns{testing::sample_tile(), 200}));
}

TEST(StepAccount, NamesTheCeilingByTheRoofline) {
  const StepAccount measured = account_for(testing::sample_trace(), kCeilings, sample_time);
  const auto limit = [](const StepAccount& account, const char* name) {
    return row(account.operations, name).limit;
  };
  // 1.2 of 2 ms in its products alone.
  EXPECT_EQ(limit(measured, "linear_input_gradient"), Limit::compute);
  EXPECT_EQ(row(measured.operations, "linear_input_gradient").reason,
            "products alone 60 %, at 83 % of the GEMM peak");
  EXPECT_EQ(limit(measured, "linear"), Limit::overhead);    // 1.4 of 3 ms
  EXPECT_EQ(limit(measured, "rms_norm"), Limit::overhead);  // 0.4 of 1 ms
  EXPECT_EQ(row(measured.operations, "rms_norm").reason, "bytes at the memory's bandwidth 40 %");
  EXPECT_EQ(limit(measured, "adamw"), Limit::cache);  // 2 of 1 ms
  EXPECT_EQ(limit(measured, "next_batches"), Limit::unknown);

  Ceilings slow = kCeilings;
  slow.memory_bytes = 5e10;
  EXPECT_EQ(limit(account_for(testing::sample_trace(), slow), "rms_norm"), Limit::memory);
  const StepAccount plain = account_for(testing::sample_trace(), kCeilings);
  EXPECT_EQ(limit(plain, "linear_input_gradient"), Limit::compute);  // 1 of 2 ms at the peak
  EXPECT_EQ(row(plain.operations, "linear_input_gradient").reason,
            "products at the GEMM peak 50 %");

  const StepAccount blind = account_for(testing::sample_trace(), {});
  for (const AccountRow& row : blind.operations) {
    EXPECT_EQ(row.limit, Limit::unknown) << row.name;
    EXPECT_EQ(row.reason, "");
  }
}

TEST(StepAccount, MaskedTilesAreNoWorkOfItsOwn) {
  // Of 10 GFLOP that the causal triangle has, documents leave 0.1.
  RankTrace trace = testing::sample_trace();
  trace.step.events[3].flops = 1e10;
  const AccountRow plain = row(account_for(trace, kCeilings).operations, "attention");
  EXPECT_DOUBLE_EQ(plain.flops, 104857600);
  EXPECT_EQ(plain.reason, "products at the GEMM peak 10 %");
  EXPECT_EQ(plain.limit, Limit::overhead);
  const StepAccount measured = account_for(trace, kCeilings, sample_time);
  EXPECT_EQ(measured.flops_in_no_product, 0);
  EXPECT_EQ(row(measured.operations, "attention").reason,
            "products alone 20 %, at 52 % of the GEMM peak");
  EXPECT_DOUBLE_EQ(measured.useful_flops, 1.18e10) << "MFU counts what the model demands";
}

TEST(StepAccount, RatesOfProductsAloneLeaveOutWhatIsNoProduct) {
  RankTrace trace = testing::sample_trace();
  trace.step.events[4].name = "linear";
  trace.step.events[4].products.clear();
  // Of 2.5 GFLOP of three calls, the products of two have 1.5 and take 1.4 of 5 ms alone; the third
  // call takes 1 ms at the peak.
  EXPECT_EQ(row(account_for(trace, kCeilings, sample_time).operations, "linear").reason,
            "products alone 28 %, at 107 % of the GEMM peak; compute floor 48 %");
}

TEST(StepAccount, ProductsAloneAreAllOfARowWhateverLimitsIt) {
  RankTrace trace = testing::sample_trace();
  trace.step.events[1].bytes = 2e8;  // 2 ms, its product 0.8
  trace.step.events[3].bytes = 1e8;  // 1 ms, its products 0.2
  const StepAccount account = account_for(trace, kCeilings, sample_time);
  // 1.4 of 3 ms, of which the second call's 0.6 are a floor.
  EXPECT_EQ(row(account.operations, "linear").reason,
            "products alone 47 %, at 107 % of the GEMM peak; compute floor 20 %; bytes at the "
            "memory's bandwidth 67 %");
  EXPECT_EQ(row(account.operations, "attention").reason,
            "products alone 20 %, at 52 % of the GEMM peak; bytes at the memory's bandwidth 100 %");
}

TEST(StepAccount, ThePassSaysWhatIsNotItsOwn) {
  const StepAccount account = account_for(testing::sample_trace(), {});
  // 0.25 of 1.1 GFLOP
  EXPECT_EQ(row(account.phases, "forward").reason,
            "23 % of its FLOPs are the backward pass's, done with the loss");
  EXPECT_EQ(row(account.phases, "backward").reason, "");
}

TEST(StepAccount, ARestBelowZeroIsExplained) {
  const StepAccount account =
      account_for(testing::sample_trace(), kCeilings,
                  [](const GemmShape& shape) { return 5 * sample_time(shape); });
  const AccountRow& rest = row(account.parts, "rest of the operations with matrix products");
  EXPECT_NEAR(rest.seconds, 6e-3 - 5 * 2.8e-3, 1e-12);
  EXPECT_THAT(rest.reason, HasSubstr("measured slower than they ran"));
}

TEST(StepAccount, ProductsOfTheOptimizerStayThere) {
  RankTrace trace = testing::sample_trace();
  trace.step.events[6].products = {{trace.step.index_of(testing::sample_tile()), 100}};
  const StepAccount account = account_for(trace, kCeilings, sample_time);
  EXPECT_NEAR(account.alone_seconds, 2.9e-3, 1e-12);
  EXPECT_NEAR(row(account.parts, "matrix products at stand-alone speed").seconds, 2.8e-3, 1e-12);
  EXPECT_EQ(row(account.parts, "matrix products at stand-alone speed").calls, 204);
  EXPECT_NEAR(row(account.parts, "optimizer").seconds, 1e-3, 1e-12);
}

TEST(StepAccount, FlopsOfNoProductAreNamed) {
  RankTrace trace = testing::sample_trace();
  EXPECT_DOUBLE_EQ(account_for(trace, kCeilings).flops_in_no_product, 0);
  trace.step.events[1].products.clear();
  EXPECT_DOUBLE_EQ(account_for(trace, kCeilings).flops_in_no_product, 1e9);
  EXPECT_THAT(account_text(account_for(trace, kCeilings)), HasSubstr("1.00 GFLOP are of kernels"));
}

TEST(StepAccount, TextSaysTheFiguresAndWhatTheyReferTo) {
  const std::string text =
      account_text(account_for(testing::sample_trace(), kCeilings, sample_time));
  EXPECT_THAT(text, HasSubstr("step 7: 10.00 ms, 256 tokens, 25.6 k tokens/s; bf16, 2 threads"));
  EXPECT_THAT(text, HasSubstr("GEMM 1000 GFLOP/s (a guess), memory 100 GB/s (another)"));
  EXPECT_THAT(text, HasSubstr("useful: 190 GFLOP/s, MFU 19.0 %"));
  EXPECT_THAT(text, HasSubstr("own matrix products at stand-alone speed: 28.0 % of the step"));
  EXPECT_THAT(text, HasSubstr("1000 x 500 x 500"));
  const std::string plain = account_text(account_for(testing::sample_trace(), {}));
  EXPECT_THAT(plain, AllOf(HasSubstr("GEMM not known, memory not known"), HasSubstr("--measure"),
                           Not(HasSubstr("MFU"))));
}

TEST(StepAccount, JsonHasWhatTheTextHas) {
  const Json json =
      Json::parse(account_json(account_for(testing::sample_trace(), kCeilings, sample_time)));
  EXPECT_EQ(json["step"], 7);
  EXPECT_DOUBLE_EQ(json["gemm_ceiling"]["per_second"], 1e12);
  EXPECT_NEAR(json["alone_seconds"].get<double>(), 2.8e-3, 1e-12);
  EXPECT_EQ(json["operations"][0]["name"], "linear");
  EXPECT_NEAR(json["operations"][0]["share"].get<double>(), 0.3, 1e-12);
  EXPECT_EQ(json["blocks"][0]["name"], "attention");
  EXPECT_EQ(json["products"].size(), 3U);
  EXPECT_EQ(json["products"][0]["runs"], 3);
  const Json blind = Json::parse(account_json(account_for(testing::sample_trace(), {})));
  EXPECT_TRUE(blind["gemm_ceiling"].is_null());
  EXPECT_FALSE(blind.contains("alone_seconds"));
}

/// Two collectives of 1 ms: one while the compute lane works, one while it waits. Beside the second
/// one, another lane communicates for 2 ms.
TEST(StepAccount, CommunicationIsNotIdleAndCountsWhereNothingElseIsCounted) {
  RankTrace trace{.step = {.number = 1, .duration = 0.010}};
  const auto event = [](const char* name, Lane lane, double start, double duration) {
    TraceEvent result;
    result.name = name;
    result.lane = lane;
    result.start = start;
    result.duration = duration;
    return result;
  };
  trace.step.events = {
      event("norm", Lane::compute, 0, 0.004), event("all_reduce", Lane::exchanges, 0.002, 0.001),
      event("all_gather", Lane::exchanges, 0.004, 0.001),
      event("sum", Lane::reductions, 0.0045, 0.002), event("norm", Lane::compute, 0.006, 0.002)};
  trace.step.events[1].bytes = 1e6;
  const StepAccount account = account_for(trace, {});
  EXPECT_NEAR(account.idle_seconds, 0.002, 1e-12);
  const AccountRow& communication =
      row(account.parts, "communication, waiting for other ranks included");
  EXPECT_NEAR(communication.seconds, 0.001 + 0.001, 1e-12);
  EXPECT_NEAR(communication.beside_seconds, 0.001 + 0.0005 + 0.0005, 1e-12);
  EXPECT_NEAR(row(account.parts, "operations without matrix products").seconds, 0.006, 1e-12);
  EXPECT_NEAR(row(account.operations, "all_reduce").seconds, 0, 1e-12);
  EXPECT_NEAR(row(account.operations, "all_gather").seconds, 0.001, 1e-12) << "it began first";
  EXPECT_NEAR(row(account.operations, "sum").seconds, 0.001, 1e-12);
  for (const auto* rows : {&account.operations, &account.blocks, &account.phases, &account.parts}) {
    double seconds = account.idle_seconds;
    for (const AccountRow& row : *rows) seconds += row.seconds;
    EXPECT_NEAR(seconds, account.seconds, 1e-12);
  }
  // The rate is that of the time in which the bytes were moved, hidden or not.
  EXPECT_THAT(account_text(account), ContainsRegex("all_reduce +1 +0.00 +1.00 +0.0 % +1.0"));
  const Json json = Json::parse(account_json(account));
  EXPECT_NEAR(json["parts"][1]["beside_seconds"].get<double>(), 0.002, 1e-12);
  EXPECT_THAT(account_text(account_for(testing::sample_trace(), {})), Not(HasSubstr("beside ms")));
}

/// A wait of the stage's list is communication, and recording is no part of the step.
TEST(StepAccount, WaitsForMessagesAreNotIdleAndRecordingIsNoTime) {
  RankTrace trace = testing::sample_run().ranks[0];
  trace.step.events.resize(1);
  trace.step.recording_seconds = 0.002;
  const StepAccount account = account_for(trace, {});
  EXPECT_NEAR(account.seconds, 0.008, 1e-12);
  // 1 ms of data, 3.3 ms for gradients and 0.1 ms until the activations are taken.
  EXPECT_NEAR(account.idle_seconds, 0.008 - 0.001 - 0.0033 - 0.0001, 1e-12);
  EXPECT_NEAR(row(account.operations, "wait receive").seconds, 0.0033, 1e-12);
  EXPECT_NEAR(row(account.blocks, "messages").seconds, 0.0034, 1e-12);
  EXPECT_NEAR(row(account.parts, "communication, waiting for other ranks included").seconds, 0.0034,
              1e-12);
}

TEST(StepAccount, AStepOfNothingIsIdle) {
  const RankTrace empty{.step = {.number = 1, .duration = 0.25}};
  const StepAccount account = account_for(empty, kCeilings, sample_time);
  EXPECT_DOUBLE_EQ(account.idle_seconds, 0.25);
  EXPECT_TRUE(account.operations.empty());
  EXPECT_THAT(account_text(account), HasSubstr("100.0 %"));
  EXPECT_THAT(account_text(account_for({.step = {.number = 1}}, kCeilings)), HasSubstr("0.00 ms"));
}

}  // namespace
}  // namespace tessera
