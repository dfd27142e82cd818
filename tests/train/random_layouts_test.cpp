// Layouts that are drawn at random, of which `verify` must accept every one. `scripts/check_verify`
// draws many of them; the suite has a few.
#include <cstdlib>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/words.h"
#include "config/load_config.h"
#include "config/mesh_of.h"
#include "support/small_family.h"
#include "train/verify.h"

namespace tessera {
namespace {

struct Drawn {
  RunConfig config;
  int ranks = 0;
};

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}

  /// Draws until a layout divides.
  Drawn layout() {
    for (;;) {
      Drawn drawn = any();
      try {
        drawn.config = parse_config(to_toml(drawn.config), "drawn");
        mesh_of(drawn.config, drawn.ranks);
        return drawn;
      } catch (const Error&) {  // another one, then
      }
    }
  }

 private:
  template <typename T>
  T one_of(const std::vector<T>& values) {
    return values[random_() % values.size()];
  }
  bool one_in(uint64_t times) { return random_() % times == 0; }

  ModelConfig model() {
    ModelConfig model = testing::small_family(one_of<Family>(
        {Family::olmo, Family::olmoe, Family::llama, Family::mixtral, Family::zaya}));
    model.layers = one_of<int64_t>({1, 2});
    model.kv_heads = one_of<int64_t>({1, 2, 4});
    if (one_in(2)) model.initialization_deviation = 0.2;
    if (!model.mixture()) return model;
    if (one_in(3)) {
      model.experts_per_token = 1;
      model.renormalise_weights = true;
    }
    model.experts = one_of<int64_t>({4, 8});
    return model;
  }

  Drawn any() {
    Drawn drawn;
    RunConfig& config = drawn.config;
    config.model = model();
    config.run.threads = 1;
    config.data.directory = "none";
    config.data.context = one_of<int64_t>({8, 16, 24});
    config.data.document_mask = one_in(2);
    config.train.micro_batch = one_of<int64_t>({1, 2, 3});
    config.train.precision = one_of<Precision>({Precision::bf16, Precision::fp32});
    config.train.seed = random_() % 1000;
    if (one_in(3)) config.train.recompute = {one_of(all_recomputed())};
    ParallelSection& parallel = config.parallel;
    parallel.tensor = one_of<int64_t>({1, 1, 2, 4});
    parallel.context = one_of<int64_t>({1, 1, 2});
    const int64_t data = one_of<int64_t>({1, 2, 4});
    drawn.ranks = static_cast<int>(parallel.tensor * parallel.context * data);
    if (drawn.ranks == 1 || drawn.ranks > 8) return any();
    if (config.model.mixture()) parallel.expert = one_of<int64_t>({1, 2, 4});
    parallel.expert_exchange = one_of<ExpertExchange>(
        {ExpertExchange::automatic, ExpertExchange::all_gather, ExpertExchange::all_to_all});
    if (one_in(4)) parallel.node_ranks = drawn.ranks / 2;
    config.train.global_batch = config.train.micro_batch * data * 2;
    config.shard.optimizer = one_of<ShardOver>({ShardOver::none, ShardOver::all});
    config.shard.gradients_wire = one_of<WireFormat>({WireFormat::fp32, WireFormat::bf16});
    config.optimizer.name = one_of<OptimizerName>({OptimizerName::adamw, OptimizerName::muon});
    return drawn;
  }

  static std::vector<Recomputed> all_recomputed() {
    std::vector<Recomputed> result;
    for (const std::string& name : words_of<Recomputed>())
      result.push_back(from_word<Recomputed>(name));
    return result;
  }

  std::mt19937_64 random_;
};

int64_t from_environment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::stoll(text);
}

TEST(RandomLayouts, AreAllAccepted) {
  const int64_t count = from_environment("TESSERA_LAYOUTS", 4);
  const int64_t seed = from_environment("TESSERA_LAYOUTS_SEED", 1);
  for (int64_t i = seed; i < seed + count; ++i) {
    const Drawn drawn = Draw(static_cast<uint64_t>(i)).layout();
    const Verification found = verify(drawn.config, mesh_of(drawn.config, drawn.ranks), {});
    EXPECT_TRUE(found.passed()) << "seed " << i << ", " << drawn.ranks << " ranks:\n"
                                << verification_text(found) << to_toml(drawn.config);
  }
}

}  // namespace
}  // namespace tessera
