// What one rank alone meets must end all of them at once, with an error that names it.
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/interrupt.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/find_checkpoint.h"
#include "comm/in_process/run_mesh.h"
#include "comm/rank_control.h"
#include "config/load_config.h"
#include "fault/fault.h"
#include "inference/evaluate.h"
#include "inference/evaluate_checkpoint.h"
#include "inference/loaded_model.h"
#include "metrics/metrics.h"
#include "ops/host_target.h"
#include "plan/programs.h"
#include "support/error_of.h"
#include "support/known_peak.h"
#include "support/names_in.h"
#include "support/prepared_data.h"
#include "support/random_batches.h"
#include "train/trainer.h"
#include "verify/layout_run.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::Fault;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

/// How long a rank waits for another here. No run may take that long.
constexpr std::chrono::seconds kTimeout(30);

class RankFailures : public ::testing::Test {
 protected:
  RankFailures() : root_(fs::canonical(folder_.path())) {
    testing::prepare_small_data(root_);
    testing::write_known_peak(root_ / "hardware.json");
  }
  ~RankFailures() override { testing::arm_fault(Fault::none, 0, ""); }

  RunConfig config(const std::string& run, const std::vector<std::string>& more = {}) const {
    const std::string text =
        "[run]\ndirectory = \"" + (root_ / run).string() +
        "\"\nthreads = 1\nrank_timeout = 30\ntensorboard = false\nhardware = \"" +
        (root_ / "hardware.json").string() +
        "\"\n"
        "[model]\nfamily = \"llama\"\nlayers = 1\nhidden_size = 16\nheads = 2\nkv_heads = 2\n"
        "feed_forward_size = 24\nvocabulary_size = 260\n"
        "[data]\ndirectory = \"" +
        (root_ / "data").string() +
        "\"\ncontext = 32\n"
        "[train]\nsteps = 4\nmicro_batch = 1\nglobal_batch = 2\nprecision = \"fp64\"\n"
        "evaluate_every = 2\nevaluate_batches = 2\n"
        "[parallel]\ntensor = 2\n"
        "[optimizer]\nlearning_rate = 1e-2\nminimum_learning_rate = 1e-3\nwarmup_steps = 4\n"
        "[checkpoint]\nevery = 2\n";
    return parse_config(text, "test", more);
  }
  TrainReport train_on_four(const RunConfig& config, bool resume = false) const {
    return train(config, {.ranks = 4, .resume = resume, .progress = false}, Logger::silent());
  }

  /// Runs an action again and again, each time with another of its operations on files failing:
  /// about `times` of all that it does.
  template <typename Prepare, typename Action>
  void with_failing_files(int64_t times, const Prepare& prepare, const Action& action) {
    prepare();
    testing::arm_fault(Fault::count, 0, root_.c_str());
    action();
    const int64_t operations = testing::operations_seen();
    ASSERT_GT(operations, times);
    int64_t failed = 0;
    for (int64_t at = 1; at <= operations; at += operations / times) {
      testing::arm_fault(Fault::none, 0, "");
      prepare();
      testing::arm_fault(Fault::fail, at, root_.c_str());
      const auto begin = std::chrono::steady_clock::now();
      std::string problem;
      try {
        action();
      } catch (const std::exception& error) {
        problem = error.what();
      }
      EXPECT_LT(std::chrono::steady_clock::now() - begin, kTimeout / 2) << problem;
      EXPECT_THAT(problem, AllOf(Not(HasSubstr("did not come")), Not(HasSubstr("same call"))))
          << "operation " << at;
      failed += problem.empty() ? 0 : 1;
    }
    testing::arm_fault(Fault::none, 0, "");
    EXPECT_GT(failed, 0);
  }

  TemporaryFolder folder_;
  fs::path root_;
};

/// A signal within a save ends the run with that save: no step follows, and no second save.
TEST_F(RankFailures, ASignalInASaveEndsTheRunWithIt) {
  const RunConfig run = config("run");
  testing::arm_fault(Fault::signal, 3, (root_ / "run/checkpoints/step-00000002.partial").c_str());
  TrainReport report;
  {
    const InterruptGuard guard;
    report = train_on_four(run);
  }
  testing::arm_fault(Fault::none, 0, "");
  EXPECT_TRUE(report.interrupted);
  EXPECT_EQ(report.step, 2);
  EXPECT_THAT(testing::names_in(root_ / "run/checkpoints"), ElementsAre("step-00000002"));
}

TEST_F(RankFailures, OfAnyFileEndATrainingRun) {
  with_failing_files(
      24, [&] { fs::remove_all(root_ / "run"); }, [&] { train_on_four(config("run")); });
}

/// Stages that wait for messages of the one that fails end as well.
TEST_F(RankFailures, OfAnyFileEndATrainingRunOfAPipeline) {
  with_failing_files(
      12, [&] { fs::remove_all(root_ / "run"); },
      [&] {
        train_on_four(config("run", {"model.layers=4", "parallel.tensor=1", "parallel.pipeline=4",
                                     "train.global_batch=4"}));
      });
}

TEST_F(RankFailures, OfAnyFileEndAResume) {
  train_on_four(config("begun", {"train.stop_after=2"}));
  with_failing_files(
      16,
      [&] {
        fs::remove_all(root_ / "run");
        fs::copy(root_ / "begun", root_ / "run", fs::copy_options::recursive);
      },
      [&] { train_on_four(config("run"), true); });
}

TEST_F(RankFailures, OfAnyFileEndAnEvaluation) {
  train_on_four(config("run"));
  with_failing_files(
      16, [] {},
      [&] {
        evaluate_checkpoint({.checkpoint = (root_ / "run").string(), .threads = 1, .ranks = 4});
      });
}

class TooManyRows : public RankFailures,
                    public ::testing::WithParamInterface<std::vector<std::string>> {};

TEST_P(TooManyRows, LoseNoStep) {
  // A router that learns this fast soon prefers some experts.
  const auto mixture = [&](const std::string& run, double bound, const std::string& more) {
    std::vector<std::string> keys{"model.experts=8",
                                  "model.experts_per_token=2",
                                  "model.expert_size=16",
                                  "model.feed_forward_size=0",
                                  "parallel.tensor=1",
                                  "parallel.expert_exchange=\"all_to_all\"",
                                  "train.global_batch=4",
                                  "train.steps=40",
                                  "train.evaluate_every=0",
                                  "optimizer.learning_rate=0.1",
                                  "checkpoint.every=0",
                                  fmt::format("parallel.expert_rows_bound={}", bound),
                                  more};
    keys.insert(keys.end(), GetParam().begin(), GetParam().end());
    return config(run, keys);
  };
  const auto tensors = [&](const std::string& run, int64_t step) {
    const fs::path folder = checkpoint_path(root_ / run / kCheckpointsName, step);
    std::string bytes;
    for (const std::string& name : testing::names_in(folder)) {
      if (name.ends_with(".safetensors")) bytes += read_file(folder / name);
    }
    return bytes;
  };
  const std::string problem =
      error_of([&] { train_on_four(mixture("bounded", 1.8, "train.stop_after=0")); });
  const auto saved = latest_checkpoint(root_ / "bounded" / kCheckpointsName);
  ASSERT_TRUE(saved.path.has_value()) << problem;
  const int64_t step = step_of_name(*saved.path).value();
  EXPECT_THAT(problem, AllOf(HasSubstr("times the 64 of an even load"),
                             HasSubstr("parallel.expert_rows_bound a larger value"),
                             HasSubstr(fmt::format("step {} was saved: go on", step))));
  EXPECT_EQ(read_metrics(root_ / "bounded" / "metrics.jsonl").size(), static_cast<size_t>(step));

  const auto stop_after = [](int64_t last) { return fmt::format("train.stop_after={}", last); };
  train_on_four(mixture("free", 0, stop_after(step)));
  EXPECT_TRUE(tensors("free", step) == tensors("bounded", step));
  train_on_four(mixture("free", 0, stop_after(step + 2)), true);
  train_on_four(mixture("bounded", 0, stop_after(step + 2)), true);
  EXPECT_TRUE(tensors("free", step + 2) == tensors("bounded", step + 2));
}

/// In one stage, and in the last of two, of which the other computes the next micro-batch.
INSTANTIATE_TEST_SUITE_P(OfExperts, TooManyRows,
                         ::testing::Values(std::vector<std::string>{"parallel.expert=4"},
                                           std::vector<std::string>{
                                               "parallel.pipeline=2", "parallel.expert=2",
                                               "model.layers=2", "model.dense_layers=1",
                                               "model.feed_forward_size=24"}));

/// Held-out data that fails on one rank: as soon as it is asked for anything, or when it is read.
class FailingSource final : public InstanceSource {
 public:
  FailingSource(std::shared_ptr<const InstanceSource> source, bool at_once)
      : source_(std::move(source)), at_once_(at_once) {}

  int64_t context() const override {
    if (at_once_) throw Error("the source cannot be opened");
    return source_->context();
  }
  void read(Split split, int64_t epoch, int64_t instance,
            std::span<int32_t> tokens) const override {
    if (instance >= 4) throw Error("the second batch cannot be read");
    source_->read(split, epoch, instance, tokens);
  }
  int64_t instances(Split split) const override { return source_->instances(split); }
  void will_need(Split, int64_t, int64_t) const override {}
  std::string location(Split split, int64_t epoch, int64_t instance, int64_t token) const override {
    return source_->location(split, epoch, instance, token);
  }
  std::string fingerprint() const override { return source_->fingerprint(); }
  std::string description() const override { return source_->description(); }

 private:
  std::shared_ptr<const InstanceSource> source_;
  bool at_once_;
};

TEST_F(RankFailures, OfAnEvaluationsDataAreAgreedUpon) {
  const ModelConfig model = config("none", {"model.layers=2"}).model;
  const TrainingData data = open_data({.directory = (root_ / "data").string(), .context = 32});
  const GivenTensors weights = unit_tensors(model_parameters(model, DType::f64));
  for (const auto& [name, tensor] : weights) std::ranges::fill(tensor.values<double>(), 0.01);
  PassesToWrite passes{.model = model,
                       .compute = DType::f64,
                       .size = {.sequences = 4, .context = 32},
                       .recompute = {},
                       .experts = {},
                       .placement = {},
                       .ranges = {}};
  const auto expect_agreement = [&](const Mesh& mesh, int failing, bool at_once) {
    World world(4, kTimeout);
    const auto begin = std::chrono::steady_clock::now();
    run_mesh(world, mesh, [&](RankGroups& groups) {
      TrainingData own = data;
      if (groups.rank() == failing) {
        auto& source = own.sources.front().instances;
        source = std::make_shared<FailingSource>(source, at_once);
      }
      Runtime runtime(host_target(1));
      runtime.join(groups);
      const RankControl control(groups);
      StandaloneEvaluator evaluator(write_evaluation_passes(passes, {mesh, groups.rank()}), weights,
                                    runtime, control);
      const auto failure = control.attempt_work([&] { evaluate_sources(*evaluator, own, 4, 8); });
      EXPECT_THAT(failure.value_or(""),
                  HasSubstr(at_once ? "the source cannot be opened" : "the second batch"));
      EXPECT_FALSE(control.any(false));
    });
    EXPECT_LT(std::chrono::steady_clock::now() - begin, kTimeout / 2);
  };
  for (const int stages : {1, 2}) {
    passes.placement = loop_placement(stages, 1);
    passes.ranges = {whole_model(model)};
    if (stages == 2) {
      passes.ranges = {{.layers = {.first = 0, .end = 1}, .embedding = true, .head = false},
                       {.layers = {.first = 1, .end = 2}, .embedding = false, .head = true}};
    }
    const Mesh mesh({.pipeline = stages, .data = {4 / stages}});
    for (const int failing : {0, 3}) {  // with two stages, a rank of the first and one of the last
      SCOPED_TRACE(fmt::format("{} stages, rank {}", stages, failing));
      expect_agreement(mesh, failing, /*at_once=*/true);
      expect_agreement(mesh, failing, /*at_once=*/false);
    }
  }
}

TEST_F(RankFailures, OfALayoutThatIsComparedEndIt) {
  LayoutTrial trial{.model = config("none").model,
                    .size = {.sequences = 4, .context = 32},
                    .mesh = Mesh({.data = {4}, .expert = 4}),
                    .experts = {.exchange = ExpertExchange::all_to_all, .rows_bound = 1}};
  trial.model.feed_forward_size = 0;
  trial.model.experts = 8;
  trial.model.experts_per_token = 2;
  trial.model.expert_size = 16;
  const auto batches = testing::random_batches(trial.size, trial.model.vocabulary_size, 1, 2, 7);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(
      error_of([&] { run_layout(trial, batches); }),
      AllOf(HasSubstr("times the 64 of an even load"), HasSubstr("parallel.expert_rows_bound")));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kTimeout / 2);
}

}  // namespace
}  // namespace tessera
