// Training on several ranks, which are threads of this process.
#include <chrono>
#include <csignal>
#include <optional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/interrupt.h"
#include "base/text.h"
#include "checkpoint/checkpoint_reader.h"
#include "comm/in_process/world.h"
#include "config/load_config.h"
#include "config/mesh_of.h"
#include "inference/evaluate_checkpoint.h"
#include "metrics/metrics.h"
#include "plan/run_target.h"
#include "plan/step_plan.h"
#include "support/error_of.h"
#include "support/file_size_limit.h"
#include "support/prepared_data.h"
#include "support/two_threads.h"
#include "train/train_options.h"
#include "train/trainer.h"
#include "train/training_state.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// A small dense model.
class Ranks : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder();
    testing::prepare_small_data(folder_->path());
  }
  static void TearDownTestSuite() { delete folder_; }

  static RunConfig config(const std::string& run, const std::vector<std::string>& more = {}) {
    const std::string text =
        "[run]\ndirectory = \"" + (folder_->path() / run).string() +
        "\"\nthreads = " + std::to_string(testing::two_threads()) +
        "\ntensorboard = false\n"
        "[model]\nfamily = \"llama\"\nlayers = 2\nhidden_size = 32\nheads = 4\nkv_heads = 2\n"
        "feed_forward_size = 48\nvocabulary_size = 260\n"
        "[data]\ndirectory = \"" +
        (folder_->path() / "data").string() +
        "\"\ncontext = 32\n"
        "[train]\nsteps = 20\nmicro_batch = 2\nglobal_batch = 8\nprecision = \"fp64\"\n"
        "[optimizer]\nlearning_rate = 1e-2\nminimum_learning_rate = 1e-3\nwarmup_steps = 4\n"
        "[checkpoint]\nevery = 10\n";
    return parse_config(text, "test", more);
  }
  static fs::path folder(const std::string& run) { return folder_->path() / run; }
  static fs::path checkpoint(const std::string& run, int64_t step) {
    return folder(run) / "checkpoints" / fmt::format("step-{:08}", step);
  }
  static TrainReport train_on(int ranks, const RunConfig& config, TrainOptions options = {}) {
    options.ranks = ranks;
    options.progress = false;
    return train(config, options, Logger::silent());
  }
  static std::vector<StepMetrics> metrics(const std::string& run) {
    return read_metrics(folder(run) / "metrics.jsonl");
  }
  /// The bytes of all tensors of a checkpoint.
  static std::string tensors(const std::string& run, int64_t step) {
    return read_file(checkpoint(run, step) / "parameters.safetensors") +
           read_file(checkpoint(run, step) / "optimizer.safetensors");
  }

  static TemporaryFolder* folder_;
};

TemporaryFolder* Ranks::folder_ = nullptr;

/// The steps of two runs of different layouts have the same losses, gradients and counts but for
/// rounding.
void expect_same_training(const std::vector<StepMetrics>& a, const std::vector<StepMetrics>& b,
                          double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    SCOPED_TRACE(fmt::format("step {}", a[i].step));
    EXPECT_EQ(a[i].step, b[i].step);
    EXPECT_EQ(a[i].tokens, b[i].tokens);
    EXPECT_EQ(a[i].lr, b[i].lr);
    EXPECT_EQ(a[i].flops, b[i].flops);
    EXPECT_NEAR(a[i].loss / b[i].loss, 1, tolerance);
    EXPECT_NEAR(a[i].grad_norm / b[i].grad_norm, 1, 100 * tolerance);
    ASSERT_EQ(a[i].held_out_loss.has_value(), b[i].held_out_loss.has_value());
    if (!a[i].held_out_loss) continue;
    EXPECT_NEAR(*a[i].held_out_loss / *b[i].held_out_loss, 1, tolerance);
  }
}

TEST_F(Ranks, OfDataHaveTheLossesOfOne) {
  const std::vector<std::string> evaluates{"train.evaluate_every=10", "train.evaluate_batches=4"};
  train_on(1, config("data-1", evaluates));
  for (const int ranks : {2, 4}) {
    const std::string run = fmt::format("data-{}", ranks);
    EXPECT_EQ(train_on(ranks, config(run, evaluates)).step, 20);
    expect_same_training(metrics(run), metrics("data-1"), 1e-11);
  }
  EXPECT_LT(metrics("data-1").back().loss, 0.8 * metrics("data-1").front().loss);
}

TEST_F(Ranks, OfDataStayNearOneInSinglePrecision) {
  const std::vector<std::string> single{"train.precision=\"fp32\""};
  train_on(1, config("single-1", {"train.precision=\"fp32\"", "train.micro_batch=4"}));
  train_on(2, config("single-2", single));
  expect_same_training(metrics("single-2"), metrics("single-1"), 1e-5);
}

TEST_F(Ranks, GiveTheSameBitsEachTime) {
  train_on(2, config("again-1"));
  train_on(2, config("again-2"));
  EXPECT_TRUE(tensors("again-1", 20) == tensors("again-2", 20));
}

TEST_F(Ranks, OfOtherAxesHaveTheLossesOfOne) {
  train_on(1, config("axes-1"));
  const std::vector<std::pair<int, std::vector<std::string>>> layouts{
      {2, {"parallel.tensor=2"}},
      {4, {"parallel.tensor=4"}},
      {2, {"parallel.context=2"}},
      {4, {"parallel.tensor=2", "parallel.context=2"}},
      {8, {"parallel.tensor=2", "parallel.context=2"}}};
  int number = 0;
  for (const auto& [ranks, keys] : layouts) {
    SCOPED_TRACE(fmt::format("{} ranks, {}", ranks, join(keys, ", ")));
    const std::string run = fmt::format("axes-of-{}", ++number);
    train_on(ranks, config(run, keys));
    expect_same_training(metrics(run), metrics("axes-1"), 1e-10);
  }
}

/// Loads a run's newest checkpoint on the ranks of a layout, and saves it as one of another run.
void load_and_save(const RunConfig& from, const std::string& to, int ranks) {
  const RunConfig config = resolve(from);
  const Mesh mesh = mesh_of(config, ranks);
  const TrainingData data = open_data(config.data);
  std::vector<StepPlan> plans = plan_steps_that_fit(config, mesh);
  World world(ranks);
  run_ranks(world, [&](int rank) {
    RankGroups groups(mesh, rank, [&](std::span<const int> of, std::string_view lane) {
      return world.group(rank, of, lane);
    });
    const RankControl control(groups);
    Runtime runtime(run_target(config, nullptr, ranks));
    runtime.join(groups);
    StepPlan& plan = plans[static_cast<size_t>(rank)];
    Executor executor(plan.programs.list(), std::move(plan.memory), runtime);
    const ParameterStore store(executor, plan.programs.update_number(),
                               plan.programs.rounding_number(),
                               plan.programs.chunks.front().parameters);
    RunConfig own = config;
    const TrainingPosition position =
        load_training(own, store, data, Logger::silent(), {runtime, control});
    own.run.directory = to;
    save_training(own, store, position, data, {runtime, control});
  });
}

TEST_F(Ranks, OfExpertsHaveTheLossesOfOne) {
  const auto mixture = [](const std::string& run, std::vector<std::string> more) {
    more.insert(more.end(), {"model.experts=8", "model.experts_per_token=2", "model.expert_size=16",
                             "model.feed_forward_size=0", "model.shared_experts=1",
                             "model.balance_coefficient=0.01", "model.router_z_coefficient=0.001",
                             "model.capacity_factor=1.5", "train.steps=8"});
    return config(run, more);
  };
  // The balance loss and the capacity are of the micro-batch of all ranks.
  const auto expect_same = [&](int ranks, const std::string& run,
                               const std::vector<std::string>& keys) {
    SCOPED_TRACE(fmt::format("{} ranks, {}", ranks, join(keys, ", ")));
    train_on(ranks, mixture(run, keys));
    const std::string one = run + "-one";
    train_on(1, mixture(one, {ranks == 4 ? "train.micro_batch=8" : "train.micro_batch=4"}));
    expect_same_training(metrics(run), metrics(one), 1e-9);
    for (size_t i = 0; i < metrics(run).size(); ++i) {
      EXPECT_EQ(metrics(run)[i].expert_load, metrics(one)[i].expert_load);
      EXPECT_NEAR(*metrics(run)[i].balance_loss / *metrics(one)[i].balance_loss, 1, 1e-9);
    }
  };
  int number = 0;
  for (const std::string exchange : {"all_gather", "all_to_all"}) {
    const std::string by = "parallel.expert_exchange=\"" + exchange + "\"";
    for (const int64_t experts : {1, 2, 4}) {
      expect_same(4, fmt::format("experts-{}", ++number),
                  {by, fmt::format("parallel.expert={}", experts)});
    }
    expect_same(4, fmt::format("experts-{}", ++number),
                {by, "parallel.expert=4", "parallel.tensor=2", "train.micro_batch=4"});
  }
}

/// The demo's model with fewer layers and shorter sequences, by its own file. It runs under the
/// thread sanitizer too, which does not see into oneDNN; fp64 does without it.
TEST_F(Ranks, TrainTheDemosModel) {
  const auto demo = [&](const std::string& run, const std::vector<std::string>& more) {
    std::vector<std::string> keys{fmt::format("run.directory=\"{}\"", folder(run).string()),
                                  fmt::format("data.directory=\"{}\"", folder("data").string()),
                                  "data.context=32",
                                  "model.vocabulary_size=260",
                                  "model.layers=2",
                                  "train.precision=\"fp64\"",
                                  "train.global_batch=2",
                                  "train.steps=2",
                                  "train.evaluate_every=2",
                                  "optimizer.warmup_steps=1",
                                  "run.threads=1"};
    keys.insert(keys.end(), more.begin(), more.end());
    return load_config(fs::path(TESSERA_SOURCE) / "configs" / "demo.toml", keys);
  };
  train_on(1, demo("demo-1", {"train.micro_batch=2", "train.evaluate_batches=2"}));
  train_on(4, demo("demo-4", {"train.micro_batch=1", "train.evaluate_batches=4",
                              "parallel.tensor=2", "parallel.expert=2"}));
  expect_same_training(metrics("demo-4"), metrics("demo-1"), 1e-10);
}

TEST_F(Ranks, GoOnBitForBit) {
  const std::vector<std::string> layout{"parallel.tensor=2"};
  train_on(4, config("straight", layout));
  train_on(4, config("stopped", {"parallel.tensor=2", "train.stop_after=7"}));
  train_on(4, config("stopped", layout), {.resume = true});
  EXPECT_TRUE(tensors("stopped", 20) == tensors("straight", 20));
}

TEST_F(Ranks, WithMoreRowsThanAreReservedEndByThatError) {
  const RunConfig bounded = config(
      "bounded", {"model.experts=8", "model.experts_per_token=2", "model.expert_size=16",
                  "model.feed_forward_size=0", "parallel.expert=4", "parallel.expert_rows_bound=1",
                  "parallel.expert_exchange=\"all_to_all\""});
  EXPECT_THAT(error_of([&] { train_on(4, bounded); }), HasSubstr("parallel.expert_rows_bound"));
}

TEST_F(Ranks, SaveWholeTensorsThatAnyLayoutLoads) {
  // Neither the vocabulary nor the inner channels divide over tensor ranks.
  const auto layout = [](int64_t tensor, int64_t context) {
    return std::vector{
        fmt::format("parallel.tensor={}", tensor), fmt::format("parallel.context={}", context),
        std::string("model.vocabulary_size=261"), std::string("model.feed_forward_size=51"),
        std::string("train.stop_after=10")};
  };
  train_on(2, config("whole", layout(2, 1)));
  const CheckpointReader reader(checkpoint("whole", 10));
  const CheckpointTensor* down = reader.find("parameters", "layers.0.feed_forward.down");
  ASSERT_NE(down, nullptr);
  EXPECT_EQ(down->shape, (Shape{32, 51}));
  const std::string saved = tensors("whole", 10);
  int number = 0;
  for (const auto& [ranks, keys] : std::vector{std::pair(1, layout(1, 1)),
                                               {2, layout(1, 1)},
                                               {2, layout(2, 1)},
                                               {4, layout(4, 1)},
                                               {4, layout(2, 2)}}) {
    const std::string run = fmt::format("saved-again-{}", ++number);
    load_and_save(config("whole", keys), folder(run).string(), ranks);
    EXPECT_TRUE(tensors(run, 10) == saved) << fmt::format("{} ranks, {}", ranks, keys[0]);
  }
}

TEST_F(Ranks, OfAnotherLayoutGoOnWithARun) {
  train_on(1, config("unbroken"));
  train_on(2, config("moved", {"parallel.tensor=2", "train.stop_after=7"}));
  train_on(4, config("moved", {"train.stop_after=13"}), {.resume = true});
  train_on(1, config("moved"), {.resume = true});
  expect_same_training(metrics("moved"), metrics("unbroken"), 1e-10);
}

TEST_F(Ranks, TakeInitialWeightsFromACheckpoint) {
  train_on(1, config("given", {"train.stop_after=10"}));
  const std::string initial = "checkpoint.initial=\"" + folder("given").string() + "\"";
  train_on(1, config("begun-1", {initial, "train.stop_after=3"}));
  train_on(2, config("begun-2", {initial, "train.stop_after=3", "parallel.tensor=2"}));
  expect_same_training(metrics("begun-2"), metrics("begun-1"), 1e-10);
}

TEST_F(Ranks, EvaluateACheckpointAsOneDoes) {
  train_on(1, config("evaluated", {"train.stop_after=10"}));
  CheckpointEvaluationOptions options{.checkpoint = folder("evaluated").string(), .threads = 2};
  const CheckpointEvaluation one = evaluate_checkpoint(options);
  for (const int ranks : {2, 4}) {
    options.ranks = ranks;
    const CheckpointEvaluation several = evaluate_checkpoint(options);
    EXPECT_NEAR(several.model.loss / one.model.loss, 1, 1e-12);
    EXPECT_EQ(several.model.targets, one.model.targets);
    EXPECT_EQ(several.model.instances, one.model.instances);
  }
  options.batch = 6;
  EXPECT_THAT(error_of([&] { evaluate_checkpoint(options); }),
              AllOf(HasSubstr("--ranks (4)"), HasSubstr("--batch (6)")));
}

TEST_F(Ranks, EndWithTheErrorOfTheOneThatThrows) {
  const auto fails = [](int rank, int64_t step) {
    if (rank == 1 && step == 3) throw Error("the third step of rank 1");
  };
  for (const int ranks : {2, 4}) {
    EXPECT_EQ(error_of([&] {
                train_on(ranks, config(fmt::format("fails-{}", ranks)), {.before_step = fails});
              }),
              "the third step of rank 1");
  }
  EXPECT_EQ(metrics("fails-2").size(), 2U);
}

TEST_F(Ranks, AreEndedByASignalAtAnyMoment) {
  for (const int wait : {0, 3, 10, 30, 60, 100}) {
    const std::string run = fmt::format("interrupted-{}", wait);
    TrainReport report;
    {
      const InterruptGuard guard;
      const std::jthread sender([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(wait));
        std::raise(SIGINT);
      });
      report = train_on(4, config(run, {"train.steps=100000"}));
    }
    EXPECT_TRUE(report.interrupted);
    EXPECT_TRUE(fs::exists(checkpoint(run, report.step))) << report.step;
    EXPECT_EQ(metrics(run).size(), static_cast<size_t>(report.step));
  }
}

TEST_F(Ranks, EndWhenTheDiskIsFull) {
  // No checkpoint fits.
  std::string problem;
  {
    const FileSizeLimit limit(16 << 10);
    problem = error_of([&] {
      train_on(4, config("full", {"parallel.tensor=2", "checkpoint.every=3"}));
    });
  }
  EXPECT_THAT(problem, HasSubstr("cannot write"));
  EXPECT_FALSE(fs::exists(checkpoint("full", 3)));
  EXPECT_EQ(metrics("full").size(), 3U);
}

TEST_F(Ranks, EndTogetherWhereOneCannotWriteItsRecords) {
  // From the fourth step on no file may grow beyond the metrics. Only the first rank has any.
  std::optional<FileSizeLimit> limit;
  const auto fill = [&](int rank, int64_t step) {
    if (rank == 0 && step == 4) limit.emplace(fs::file_size(folder("filled") / "metrics.jsonl"));
  };
  const std::string problem = error_of(
      [&] { train_on(4, config("filled", {"parallel.tensor=2"}), {.before_step = fill}); });
  limit.reset();
  EXPECT_THAT(problem,
              AllOf(HasSubstr("cannot write " + (folder("filled") / "metrics.jsonl").string()),
                    HasSubstr("step 4 could not be saved: cannot write")));
  EXPECT_EQ(metrics("filled").size(), 3U);
}

/// Flips a bit in the middle of a file.
void flip(const fs::path& path) {
  std::string bytes = read_file(path);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_file(path, bytes);
}

TEST_F(Ranks, SaveBeforeDamagedDataEndsThem) {
  const fs::path held_out = folder_->path() / "data/held_out-00000.npy";
  flip(held_out);
  const std::string problem = error_of([&] {
    train_on(4, config("damaged", {"checkpoint.every=0", "train.evaluate_every=3"}));
  });
  flip(held_out);
  EXPECT_THAT(problem, AllOf(HasSubstr("held_out-00000.npy"), HasSubstr("(step 3 was saved")));
  EXPECT_TRUE(fs::exists(checkpoint("damaged", 3)));
  EXPECT_EQ(metrics("damaged").size(), 3U);
}

TEST_F(Ranks, PassOverADamagedCheckpoint) {
  train_on(2, config("passes", {"checkpoint.keep=2"}));
  flip(checkpoint("passes", 20) / "parameters.safetensors");
  EXPECT_EQ(train_on(4, config("passes"), {.resume = true}).step, 20);
  EXPECT_EQ(metrics("passes").size(), 20U);
  train_on(1, config("unharmed"));
  expect_same_training(metrics("passes"), metrics("unharmed"), 1e-10);
}

TEST_F(Ranks, RefuseWhatTheyCannotShare) {
  const auto error = [](int ranks, const std::vector<std::string>& keys) {
    return error_of([&] { train_on(ranks, config("refused", keys)); });
  };
  EXPECT_THAT(error(3, {"parallel.tensor=2"}),
              AllOf(HasSubstr("parallel.tensor (2)"), HasSubstr("--ranks (3)")));
  EXPECT_THAT(error(8, {}),
              AllOf(HasSubstr("train.micro_batch (2)"), HasSubstr("8 data-parallel ranks is 16"),
                    HasSubstr("train.global_batch (8)")));
  EXPECT_THAT(error(2, {"run.device=\"emulated\"", "train.precision=\"fp32\""}),
              AllOf(HasSubstr("--ranks is 2"), HasSubstr("run.device is \"emulated\"")));
  EXPECT_FALSE(fs::exists(folder("refused")));
}

}  // namespace
}  // namespace tessera
