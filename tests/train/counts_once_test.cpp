#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/words.h"
#include "verify/layout_run.h"

namespace tessera {
namespace {

/// A mixture of three layers on eight ranks.
LayoutTrial mixture_of_eight(ExpertExchange exchange, const Recompute& recompute) {
  ModelConfig model{.layers = 3,
                    .hidden_size = 32,
                    .heads = 4,
                    .kv_heads = 4,
                    .vocabulary_size = 64,
                    .experts = 8,
                    .experts_per_token = 2,
                    .expert_size = 16};
  model.balance_coefficient = 0.05;
  return {.model = model,
          .recompute = recompute,
          .size = {.sequences = 8, .context = 16},
          .mesh = Mesh({.data = {8}, .expert = 4}),
          .experts = {.exchange = exchange}};
}

/// How often numbers of tokens go between ranks, by operation and phase.
std::map<std::string, int> exchanges_of_counts(const LayoutTrial& trial) {
  const StepPrograms programs = layout_programs(trial, 0);
  const Program& program = programs.chunks().front().program;
  std::map<std::string, int> result;
  for (const Node& node : program.nodes()) {
    const auto name = node.operation->name();
    if (name != "exchange_counts" && name != "all_reduce") continue;
    if (program.spec(node.outputs[0]).dtype != DType::i32) continue;
    ++result[fmt::format("{}, {}", name, word(node.phase))];
  }
  return result;
}

/// A recomputed layer takes the numbers that it has.
TEST(CountsOnce, GoBetweenRanksInTheForwardPassAlone) {
  for (const Recompute& recompute :
       {Recompute{}, Recompute{.norm = true}, Recompute{.attention = true},
        Recompute{.experts = true}, Recompute{.layer = true},
        Recompute{.norm = true, .attention = true, .experts = true, .layer = true}}) {
    std::map<std::string, int> expected{{"all_reduce, forward", 3}};
    EXPECT_EQ(exchanges_of_counts(mixture_of_eight(ExpertExchange::all_gather, recompute)),
              expected);
    expected["exchange_counts, forward"] = 3;
    EXPECT_EQ(exchanges_of_counts(mixture_of_eight(ExpertExchange::all_to_all, recompute)),
              expected);
  }
}

}  // namespace
}  // namespace tessera
