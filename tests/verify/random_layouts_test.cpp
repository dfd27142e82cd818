// Layouts that are drawn at random, of which `verify` must accept every one. `scripts/check_verify`
// draws many of them; the suite has a few.
#include <algorithm>
#include <cstdlib>
#include <exception>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/words.h"
#include "config/load_config.h"
#include "config/mesh_of.h"
#include "config/pipeline_of.h"
#include "support/small_family.h"
#include "verify/rounded_trials.h"
#include "verify/verify.h"

namespace tessera {
namespace {

struct Drawn {
  RunConfig config;
  int ranks = 0;
  VerifyOptions options;

  Mesh mesh() const { return mesh_of(config, ranks); }
};

/// Draws what the documents allow, so that nothing that it draws may be refused.
class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}

  Drawn layout() {
    Drawn drawn;
    RunConfig& config = drawn.config;
    ParallelSection& parallel = config.parallel;
    config.model = model();
    parallel.tensor = tensor(config.model);
    parallel.context = one_of<int64_t>({1, 1, 2});
    const int64_t stage = parallel.tensor * parallel.context;  // ranks of one stage
    if (stage < 8 && one_in(2)) pipeline(config);
    const int64_t shared = stage * parallel.pipeline;
    const int64_t data = one_of<int64_t>(shared == 1   ? std::vector<int64_t>{2, 3, 4, 6}
                                         : shared == 8 ? std::vector<int64_t>{1}
                                         : shared == 4 ? std::vector<int64_t>{1, 2}
                                                       : std::vector<int64_t>{1, 2, 3, 4});
    drawn.ranks = static_cast<int>(shared * data);
    if (one_in(4)) parallel.levels = levels(drawn.ranks, shared);
    parallel.overlap = !one_in(4);
    parallel.overlap_memory = {one_of<int64_t>({0, 1 << 12, 1 << 16, 1 << 30})};
    config.run.threads = 1;
    const int64_t pieces = (parallel.context > 1 ? 2 * parallel.context : 1) * parallel.tensor;
    config.data.directory = "none";
    config.data.context = positions(pieces);
    config.data.document_mask = one_in(2);
    if (one_in(4)) drawn.options.context = positions(pieces);
    train(config, data);
    config.optimizer.name = one_of<OptimizerName>({OptimizerName::adamw, OptimizerName::muon});
    // Blocks are another algorithm where ranks share a matrix.
    if (parallel.tensor == 1 && one_in(2)) config.optimizer.muon_split = MuonSplit::blocks;
    if (config.model.mixture()) experts(config, stage * data, data);
    config.shard.gradients_wire = one_of<WireFormat>({WireFormat::fp32, WireFormat::bf16});
    if (!one_in(3)) shard(config, drawn.ranks);
    return drawn;
  }

  /// Draws any groups, of which some are refused.
  void any_groups(ShardConfig& shard) {
    const std::vector<ShardPlacement> all{{"none"},     {"all"},      {"pair"},     {"node"},
                                          {"rack"},     {.ranks = 2}, {.ranks = 3}, {.ranks = 4},
                                          {.ranks = 8}, {.ranks = 1}};
    for (ShardPlacement* placement :
         {&shard.weights, &shard.gradients, &shard.optimizer, &shard.secondary}) {
      *placement = one_of(all);
    }
    shard.expert_aware = one_in(2);
  }

  /// Draws wires that may be integers.
  void wires(ShardConfig& shard) {
    const std::vector<WireFormat> formats{WireFormat::fp32, WireFormat::bf16, WireFormat::int8,
                                          WireFormat::int4};
    shard.weights_wire = one_of(formats);
    shard.secondary_wire = one_of(formats);
    shard.gradients_wire = one_of(formats);
    // More than 64 numbers of so few bits may have errors as large as they are.
    const bool few_bits = shard.gradients_wire == WireFormat::int4;
    shard.block = one_of<int64_t>(few_bits ? std::vector<int64_t>{2, 16, 64}
                                           : std::vector<int64_t>{2, 16, 64, 256});
    if (one_in(2)) shard.error_feedback = 0.8;
  }

 private:
  template <typename T>
  T one_of(const std::vector<T>& values) {
    return values[random_() % values.size()];
  }
  bool one_in(uint64_t times) { return random_() % times == 0; }
  /// Two nodes, with pairs of ranks in them or not; or three, each with whole models.
  std::vector<int64_t> levels(int64_t ranks, int64_t of_a_model) {
    if (ranks % 3 == 0) return {of_a_model * one_of<int64_t>({1, ranks / of_a_model / 3})};
    if (ranks < 8 || one_in(2)) return {ranks / 2};
    return {2, ranks / 4};
  }

  ModelConfig model() {
    const auto family =
        one_of<Family>({Family::olmo, Family::olmoe, Family::llama, Family::mixtral, Family::zaya});
    ModelConfig model = testing::small_family(family);
    model.layers = one_of<int64_t>({1, 2});
    model.kv_heads = one_of<int64_t>({1, 2, 4});
    if (one_in(2)) model.initialization_deviation = 0.2;
    if (model.attention == AttentionKind::grouped_query && one_in(2)) {
      model.query_key_norm =
          one_of<QueryKeyNorm>({QueryKeyNorm::none, QueryKeyNorm::projection, QueryKeyNorm::head});
    }
    if (one_in(4)) {  // matrices that cuts go through
      model.hidden_size = 64;
      model.vocabulary_size = 301;
      (model.mixture() ? model.expert_size : model.feed_forward_size) = 72;
    }
    if (!model.mixture()) return model;
    if (one_in(3)) {
      model.experts_per_token = 1;
      model.renormalise_weights = true;
    }
    model.experts = one_of<int64_t>({4, 8});
    if (one_in(3)) model.shared_experts = one_of<int64_t>({1, 2});
    if (model.layers == 2 && one_in(3)) {
      model.dense_layers = 1;
      model.feed_forward_size = 12;
    }
    if (one_in(3)) {
      model.balance_biases = one_of<BiasBalancing>(
          {BiasBalancing::none, BiasBalancing::controller, BiasBalancing::sign});
    }
    if (one_in(3)) model.balance_coefficient = 0.05;
    if (one_in(2)) {
      model.balance_tokens = one_of<BalanceTokens>(
          {BalanceTokens::rank, BalanceTokens::micro_batch, BalanceTokens::global_batch});
    }
    if (one_in(3)) model.capacity_factor = one_of<double>({0.5, 1, 1.5});
    return model;
  }

  /// Draws two chunks or four, on two stages or on one rank, and a schedule that takes them.
  void pipeline(RunConfig& config) {
    ParallelSection& parallel = config.parallel;
    parallel.pipeline = one_of<int64_t>({1, 2, 2});
    parallel.virtual_stages = parallel.pipeline == 1 ? 2 : one_of<int64_t>({1, 2});
    std::vector<ScheduleKind> kinds;
    for (const std::string& name : words_of<ScheduleKind>())
      kinds.push_back(from_word<ScheduleKind>(name));
    std::erase_if(kinds, [&](ScheduleKind kind) {
      const bool one_chunk =
          kind == ScheduleKind::one_forward_one_backward || kind == ScheduleKind::zero_bubble_h1;
      return is_v(kind) ? parallel.virtual_stages != 2 : one_chunk && parallel.virtual_stages != 1;
    });
    parallel.schedule = word(one_of(kinds));
    if (takes_consecutive_micro_batches(parallel)) {
      parallel.consecutive_micro_batches = one_of<int64_t>({0, 1, 2});
    }
    config.model.layers = std::max(config.model.layers, model_chunks(parallel));
  }

  /// A compressed key head goes through its convolutions whole.
  int64_t tensor(const ModelConfig& model) {
    std::vector<int64_t> sizes{1, 1, 2, 4};
    if (model.attention == AttentionKind::compressed_convolutional) {
      std::erase_if(sizes, [&](int64_t size) { return model.kv_heads % size != 0; });
    }
    return one_of(sizes);
  }

  int64_t positions(int64_t pieces) {
    std::vector<int64_t> sizes{8, 16, 24, 48};
    std::erase_if(sizes, [&](int64_t size) { return size % pieces != 0; });
    return one_of(sizes);
  }

  void train(RunConfig& config, int64_t data) {
    config.train.micro_batch = one_of<int64_t>({1, 2, 3});
    // The fewest that every schedule takes.
    const int64_t micro_batches = 2 * config.parallel.pipeline;
    config.train.global_batch = config.train.micro_batch * data * micro_batches;
    config.train.precision = one_of<Precision>({Precision::bf16, Precision::fp32});
    config.train.seed = random_() % 1000;
    if (one_in(3)) config.train.recompute = {one_of(all_recomputed())};
    if (config.parallel.pipeline > 1 && one_in(2)) config.train.recompute_stages = {0};
  }

  /// `ranks` are those of a stage, over all models.
  void experts(RunConfig& config, int64_t ranks, int64_t data) {
    ParallelSection& parallel = config.parallel;
    ModelConfig& model = config.model;
    std::vector<int64_t> sizes{1, 2, 4};
    std::erase_if(sizes, [&](int64_t size) { return ranks % size != 0; });
    parallel.expert = one_of(sizes);
    parallel.expert_exchange = one_of<ExpertExchange>(
        {ExpertExchange::automatic, ExpertExchange::all_gather, ExpertExchange::all_to_all});
    if (parallel.expert > 1 && one_in(2)) {
      const int64_t k = model.experts_per_token;
      const int64_t rows = parallel.expert * std::min(k, model.experts / parallel.expert);
      const double most = static_cast<double>(rows) / static_cast<double>(k);
      // What a run may get, so that none ends for it: a capacity may be rounded up to a row more.
      const bool dropless = model.capacity_factor == 0;
      parallel.expert_rows_bound = dropless ? most : std::min(most, model.capacity_factor + 1);
    }
    if (model.capacity_factor > 0 && data == ranks && one_in(2)) {
      parallel.capacity_tokens = TokenSet::rank;
    }
    // One rank cannot have the tokens of a data rank and of all of them.
    const bool of_all =
        model.balance_biases == BiasBalancing::controller ||
        (model.capacity_factor > 0 && parallel.capacity_tokens == TokenSet::micro_batch);
    if (model.balance_tokens == BalanceTokens::rank && of_all) {
      model.balance_tokens = BalanceTokens::micro_batch;
    }
    const bool balances_all =
        model.balance_coefficient > 0 && model.balance_tokens != BalanceTokens::rank;
    if (balances_all || model.balance_biases == BiasBalancing::controller) {
      parallel.capacity_tokens = TokenSet::micro_batch;
    }
  }

  /// A group of ranks that hold the same weights, and the neighbours among which it is: with those
  /// that share a copy of the weights.
  struct Group {
    ShardPlacement placement;
    int64_t neighbours;
  };

  /// Returns groups, smaller ones first. A number is left out if its group would cut another one.
  std::vector<Group> groups(const ParallelSection& parallel, int64_t ranks) {
    const int64_t of_a_copy = parallel.tensor * parallel.pipeline;
    std::vector<Group> result{{{"none"}, 0}, {{"all"}, ranks}};
    if (parallel.levels.size() == 1) result.push_back({{"node"}, parallel.levels[0]});
    if (parallel.levels.size() == 2) {
      result.push_back({{"pair"}, 2});
      result.push_back({{"node"}, 2 * parallel.levels[1]});
    }
    std::vector<int64_t> numbers{2, 3, 4, 6};
    std::ranges::shuffle(numbers, random_);
    for (const int64_t number : numbers) {
      const int64_t neighbours = number * of_a_copy;
      if (number % parallel.context == 0 && ranks % neighbours == 0 && nests(neighbours, result)) {
        result.push_back({{.ranks = number}, neighbours});
      }
    }
    std::ranges::stable_sort(result, {}, &Group::neighbours);
    return result;
  }

  static bool nests(int64_t neighbours, const std::vector<Group>& groups) {
    return std::ranges::all_of(groups, [&](const Group& group) {
      return group.neighbours == 0 || group.neighbours % neighbours == 0 ||
             neighbours % group.neighbours == 0;
    });
  }

  /// Draws groups of which each is within the next one.
  void shard(RunConfig& config, int64_t ranks) {
    const ParallelSection& parallel = config.parallel;
    ShardConfig& shard = config.shard;
    const std::vector<Group> all = groups(parallel, ranks);
    const auto within = [&](size_t outer) { return random_() % (outer + 1); };
    const size_t optimizer = one_in(2) ? all.size() - 1 : within(all.size() - 1);
    const size_t gradients = one_in(2) ? optimizer : within(optimizer);
    const size_t weights = one_in(2) ? gradients : within(gradients);
    shard.optimizer = all[optimizer].placement;
    shard.gradients = all[gradients].placement;
    shard.weights = all[weights].placement;
    if (one_in(2)) shard.secondary = all[within(optimizer)].placement;
    shard.gather_again = !one_in(3);
    shard.gradients_by_level = !one_in(4);
    const int64_t experts = parallel.expert;
    const bool are_neighbours =
        parallel.tensor % experts == 0 || (experts / parallel.tensor % parallel.context == 0 &&
                                           nests(experts * parallel.pipeline, all));
    if (experts > 1 && gradients == 0 && are_neighbours) shard.expert_aware = one_in(2);
  }

  static std::vector<RecomputedBlock> all_recomputed() {
    std::vector<RecomputedBlock> result;
    for (const std::string& name : words_of<RecomputedBlock>())
      result.push_back(from_word<RecomputedBlock>(name));
    return result;
  }

  std::mt19937_64 random_;
};

/// What the program read of a drawn configuration, as of a file. Fails if it refuses it.
std::optional<Drawn> accepted(uint64_t seed, bool with_wires = false) {
  Draw draw(seed);
  Drawn drawn = draw.layout();
  if (with_wires) draw.wires(drawn.config.shard);
  const std::string text = to_toml(drawn.config);
  try {
    drawn.config = parse_config(text, "drawn");
    trial_sizes(drawn.config, drawn.mesh(), drawn.options.context);
    return drawn;
  } catch (const Error& error) {
    ADD_FAILURE() << "seed " << seed << ", " << drawn.ranks << " ranks, --context "
                  << drawn.options.context << ": " << error.what() << "\n"
                  << text;
    return std::nullopt;
  }
}

int64_t from_environment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::stoll(text);
}

/// Nothing is computed here, so there are many.
TEST(RandomLayouts, AreNotRefused) {
  const int64_t count = std::max<int64_t>(300, from_environment("TESSERA_LAYOUTS", 0));
  const int64_t seed = from_environment("TESSERA_LAYOUTS_SEED", 1);
  for (int64_t i = seed; i < seed + count; ++i) accepted(static_cast<uint64_t>(i));
}

/// Programs are written of what is not refused.
TEST(RandomLayouts, OfAnyGroupsAreProgramsOrErrorsThatNameKeys) {
  const int64_t count = std::max<int64_t>(60, from_environment("TESSERA_LAYOUTS", 0));
  const int64_t seed = from_environment("TESSERA_LAYOUTS_SEED", 1);
  int64_t refused = 0;
  for (int64_t i = seed; i < seed + count; ++i) {
    Draw draw(static_cast<uint64_t>(i));
    Drawn drawn = draw.layout();
    draw.any_groups(drawn.config.shard);
    SCOPED_TRACE(fmt::format("seed {}, {} ranks:\n{}", i, drawn.ranks, to_toml(drawn.config)));
    std::optional<Mesh> mesh;
    try {
      drawn.config = parse_config(to_toml(drawn.config), "drawn");
      mesh = drawn.mesh();
    } catch (const Error& error) {
      ++refused;
      EXPECT_THAT(error.what(), ::testing::HasSubstr("shard."));
    }
    if (!mesh) continue;
    try {
      const LayoutTrial trial = trial_of(
          drawn.config, *mesh, {drawn.config.train.micro_batch, drawn.config.data.context});
      layout_programs(trial, drawn.ranks - 1);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_LT(refused, count);
}

TEST(RandomLayouts, AreAllAccepted) {
  const int64_t count = from_environment("TESSERA_LAYOUTS", 4);
  const int64_t seed = from_environment("TESSERA_LAYOUTS_SEED", 1);
  for (int64_t i = seed; i < seed + count; ++i) {
    const std::optional<Drawn> drawn = accepted(static_cast<uint64_t>(i));
    if (!drawn) continue;
    const auto what = [&] {
      return fmt::format("seed {}, {} ranks, --context {}:\n{}", i, drawn->ranks,
                         drawn->options.context, to_toml(drawn->config));
    };
    try {
      const Verification found = verify(drawn->config, drawn->mesh(), drawn->options);
      EXPECT_TRUE(found.passed()) << what() << verification_text(found);
    } catch (const std::exception& error) {
      ADD_FAILURE() << what() << error.what();
    }
  }
}

/// Weights that no format rounds leave the bits of weights that travel as they are. Gradients are
/// within the rounding of their format.
TEST(RandomLayouts, TravelInEachFormat) {
  const int64_t count = from_environment("TESSERA_LAYOUTS", 4);
  const int64_t seed = from_environment("TESSERA_LAYOUTS_SEED", 1);
  for (int64_t i = seed; i < seed + count; ++i) {
    const std::optional<Drawn> drawn = accepted(static_cast<uint64_t>(i), /*with_wires=*/true);
    if (!drawn) continue;
    const RunConfig& config = drawn->config;
    SCOPED_TRACE(fmt::format("seed {}, {} ranks:\n{}", i, drawn->ranks, to_toml(config)));
    try {
      const LayoutTrial trial =
          trial_of(config, drawn->mesh(), {config.train.micro_batch, config.data.context});
      expect_bits_of_plain_weights(trial);
      expect_gradients_within_rounding(trial);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

}  // namespace
}  // namespace tessera
