#include "train/trainer.h"

#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/hash.h"
#include "base/interrupt.h"
#include "base/usable_memory.h"
#include "checkpoint/save.h"
#include "hardware/hardware_file.h"
#include "hardware/tuned_products_file.h"
#include "inference/evaluate.h"
#include "inference/generate.h"
#include "inference/loaded_model.h"
#include "metrics/metrics.h"
#include "ops/host_target.h"
#include "plan/step_plan.h"
#include "support/error_of.h"
#include "support/prepared_data.h"
#include "support/save_tensors.h"
#include "train/train_options.h"
#include "train/training_state.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing::kQuiet;
using testing::kResume;

class TrainerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder();
    testing::prepare_small_data(folder_->path());
  }
  static void TearDownTestSuite() { delete folder_; }

  /// The small configuration of a run of its own, with overrides.
  static RunConfig config(const std::string& run, std::vector<std::string> overrides = {}) {
    return parse_config(testing::small_config(folder_->path(), run), "test", overrides);
  }
  static fs::path run_folder(const std::string& run) { return folder_->path() / run; }

  /// All tensors of a run's checkpoint after `step`.
  static std::string tensors(const std::string& run, int64_t step) {
    const fs::path folder = run_folder(run) / "checkpoints" / fmt::format("step-{:08}", step);
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    EXPECT_EQ(files.size(), 2U);
    std::string all;
    for (const fs::path& file : files) all += read_file(file);
    return all;
  }

  static TemporaryFolder* folder_;
};

TemporaryFolder* TrainerTest::folder_ = nullptr;

TEST_F(TrainerTest, TwoRunsAndAResumedOneGiveTheSameBits) {
  train(config("first", {"checkpoint.keep=4"}), kQuiet, Logger());
  train(config("second", {"train.stop_after=100"}), kQuiet, Logger());
  EXPECT_TRUE(tensors("first", 100) == tensors("second", 100));
  train(config("second"), kResume, Logger());
  const std::string first = tensors("first", 200);
  EXPECT_TRUE(first == tensors("second", 200));
  EXPECT_FALSE(first == tensors("first", 150));

  // Losses too, and the model learnt something: from the logarithm of the vocabulary downwards.
  const auto whole = read_metrics(run_folder("first") / "metrics.jsonl");
  const auto resumed = read_metrics(run_folder("second") / "metrics.jsonl");
  ASSERT_EQ(whole.size(), 200U);
  ASSERT_EQ(resumed.size(), 200U);
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ(whole[i].loss, resumed[i].loss);
    EXPECT_EQ(whole[i].step, static_cast<int64_t>(i) + 1);
  }
  EXPECT_NEAR(whole[0].loss, std::log(257.0), 0.1);
  EXPECT_LT(whole[199].loss, 1.5);
}

TEST_F(TrainerTest, ATableOfTunedProductsIsForADevice) {
  const fs::path file = run_folder("products.json");
  const auto error = [&] {
    return error_of([&] {
      train(config("tuned", {"run.tuned_products=\"" + file.string() + "\""}), kQuiet, Logger());
    });
  };
  EXPECT_THAT(error(), AllOf(HasSubstr("run.tuned_products = \""), HasSubstr("products.json")));
  write_file(file, "{}");
  EXPECT_THAT(error(), HasSubstr("\"format\""));
  write_file(file,
             tuned_products_json({.library = "a", .device = "b", .products = {}, .grouped = {}}));
  EXPECT_THAT(error(), HasSubstr("run.device"));
}

TEST_F(TrainerTest, PeakIsThatOfTheHardwareFile) {
  Hardware hardware{this_processor(2), {}, {}};
  hardware.gemms = {{.dtype = DType::f32, .m = 1024, .n = 1024, .k = 1024, .best = 4e12}};
  hardware.gemms[0].median = 3e12;
  const fs::path file = run_folder("hardware.json");
  const auto configured = [&](const std::string& precision) {
    return config("known", {"train.stop_after=2", "train.precision=\"" + precision + "\"",
                            "run.hardware=\"" + file.string() + "\""});
  };
  write_file(file, hardware_json(hardware));
  train(configured("fp32"), kQuiet, Logger());
  for (const StepMetrics& metrics : read_metrics(run_folder("known") / "metrics.jsonl")) {
    const double flops = metrics.flops.value() / static_cast<double>(metrics.step);
    EXPECT_NEAR(metrics.mfu * metrics.seconds * 4e12 / flops, 1, 1e-3);
  }

  // A file that does not fit is an error before anything is written.
  fs::remove_all(run_folder("known"));
  const auto error = [&](const std::string& precision) {
    return error_of([&] { train(configured(precision), kQuiet, Logger()); });
  };
  EXPECT_THAT(error("fp64"), HasSubstr("no square matrix product of f64"));
  hardware.processor.threads = 3;
  write_file(file, hardware_json(hardware));
  EXPECT_THAT(error("fp32"),
              AllOf(HasSubstr("run.hardware = \""), HasSubstr("hardware.json was measured on")));
  fs::remove(file);
  EXPECT_THAT(error("fp32"), HasSubstr("hardware.json"));
  EXPECT_FALSE(fs::exists(run_folder("known")));
}

TEST_F(TrainerTest, PlannedPeakIsTheMeasuredOne) {
  const std::vector<std::string> settings{"[]",
                                          "[\"norm\"]",
                                          "[\"attention\"]",
                                          "[\"experts\"]",
                                          "[\"norm\", \"attention\", \"experts\"]",
                                          "[\"layer\"]"};
  for (const std::string& recompute : settings) {
    for (const std::string evaluate : {"0", "1"}) {
      const std::string run = "peak-" + hash_text(hash(recompute + evaluate));
      const RunConfig settings_config =
          config(run, {"train.steps=2", "optimizer.warmup_steps=1", "train.recompute=" + recompute,
                       "train.evaluate_every=" + evaluate});
      train(settings_config, kQuiet, Logger());
      const auto metrics = read_metrics(run_folder(run) / "metrics.jsonl");
      EXPECT_EQ(metrics.back().memory_bytes,
                plan_step_that_fits(resolve(settings_config)).memory.arena_bytes)
          << recompute << evaluate;
    }
  }
}

TEST_F(TrainerTest, RecomputationChangesNoBitOfTraining) {
  train(config("kept", {"train.steps=20"}), kQuiet, Logger());
  train(config("again", {"train.steps=20", "train.recompute=[\"layer\"]"}), kQuiet, Logger());
  EXPECT_TRUE(tensors("kept", 20) == tensors("again", 20));
}

TEST_F(TrainerTest, MicroBatchesOfOneStepAccumulateToTheSameGradient) {
  // In f64 the split into micro-batches leaves only rounding; the balance loss is defined on a
  // micro-batch's own tokens, so it is switched off.
  const std::vector<std::string> common{"train.steps=5", "optimizer.warmup_steps=1",
                                        "train.precision=\"fp64\"",
                                        "model.balance_coefficient=0.0"};
  auto split = common;
  split.push_back("train.micro_batch=1");
  auto whole = common;
  whole.push_back("train.micro_batch=4");
  train(config("split", split), kQuiet, Logger());
  train(config("whole", whole), kQuiet, Logger());
  const auto a = read_metrics(run_folder("split") / "metrics.jsonl");
  const auto b = read_metrics(run_folder("whole") / "metrics.jsonl");
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i].loss, b[i].loss, 1e-10);
    EXPECT_NEAR(a[i].grad_norm, b[i].grad_norm, 1e-10);
  }
}

TEST_F(TrainerTest, ANumberThatIsNotFiniteStopsTheRunWithItsName) {
  RunConfig overflow = config("overflow", {"train.precision=\"fp32\""});
  overflow.model.initialization_deviation = 1e39;  // more than a configuration may say
  try {
    train(overflow, kQuiet, Logger());
    FAIL() << "the overflow went unnoticed";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("step 1"));
    EXPECT_THAT(error.what(), HasSubstr("embedding"));
    EXPECT_THAT(error.what(), HasSubstr("is not finite"));
    EXPECT_THAT(error.what(),
                EndsWith("start again without --resume: no checkpoint was saved yet"));
  }
}

TEST_F(TrainerTest, ARunThatFailsSaysWhereToGoOn) {
  train(config("failing", {"train.stop_after=2", "train.precision=\"fp32\""}), kQuiet, Logger());
  RunConfig later =
      config("failing", {"train.precision=\"fp32\"", "optimizer.minimum_learning_rate=0.0"});
  later.optimizer.learning_rate = 1e38;  // more than a configuration may say
  EXPECT_THAT(error_of([&] { train(later, kResume, Logger()); }),
              EndsWith("go on from step 2 with --resume"));
}

TEST_F(TrainerTest, ALossOfTheRoutersThatIsNotFiniteStopsTheRunToo) {
  for (double ModelConfig::*loss :
       {&ModelConfig::balance_coefficient, &ModelConfig::router_z_coefficient}) {
    RunConfig routers = config("routers", {"train.precision=\"fp32\""});
    routers.model.*loss = 1e38;  // more than a configuration may say
    EXPECT_THAT(error_of([&] { train(routers, kQuiet, Logger()); }),
                AllOf(HasSubstr("step 1"), HasSubstr("is not finite")));
    fs::remove_all(run_folder("routers"));
  }
}

TEST_F(TrainerTest, AnExistingRunIsNotWrittenOver) {
  const RunConfig once = config("once", {"train.steps=2", "optimizer.warmup_steps=1"});
  train(once, kQuiet, Logger());
  EXPECT_THROW(train(once, kQuiet, Logger()), Error);
}

TEST_F(TrainerTest, AnImportedModelIsNoRunAndTheErrorSaysHowToBeginWithIt) {
  const RunConfig named = config("imported");
  const CheckpointState state{.config = to_toml(named)};
  const NamedTensor weight{"parameters", "weight", Tensor(Shape{2}, DType::f32)};
  for (const char* const below : {"", "checkpoints"}) {
    const fs::path output = run_folder("imported") / below;
    const fs::path saved = save_checkpoint(output, state, {&weight, 1});
    const fs::path initial = std::string_view(below).empty() ? run_folder("imported") : saved;
    const auto advice = AllOf(HasSubstr("`checkpoint import` wrote"),
                              HasSubstr("checkpoint.initial = \"" + initial.string() + "\""));
    EXPECT_THAT(error_of([&] { train(named, kQuiet, Logger()); }), advice);
    EXPECT_THAT(error_of([&] { train(named, kResume, Logger()); }), advice);
    EXPECT_THAT(error_of([&] { resumed_model(named); }), advice);
    fs::remove_all(run_folder("imported"));
  }
}

TEST_F(TrainerTest, ResumeNeedsACheckpointTheSameDataAndTheSameSeed) {
  EXPECT_THAT(error_of([&] { train(config("nothing"), kResume, Logger()); }),
              EndsWith("start the run without --resume"));
  train(config("nothing", {"train.steps=2", "optimizer.warmup_steps=1"}), kQuiet, Logger());
  train(config("seeded", {"train.stop_after=2"}), kQuiet, Logger());
  try {
    train(config("seeded", {"train.seed=2"}), kResume, Logger());
    FAIL() << "another seed was accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("train.seed"));
  }
  try {
    train(config("seeded", {"model.hidden_size=64"}), kResume, Logger());
    FAIL() << "another model was accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("model.hidden_size"));
  }
}

TEST_F(TrainerTest, ResumeRefusesEveryKeyThatWouldMakeItAnotherRun) {
  train(config("fixed", {"train.stop_after=2"}), kQuiet, Logger());
  for (const std::string change :
       {"model.experts_per_token=1", "model.rope_theta=5000.0", "data.context=16",
        "data.document_mask=false", "train.precision=\"fp32\"", "train.micro_batch=1",
        "train.global_batch=8", "optimizer.name=\"muon\"", "optimizer.muon_split=\"blocks\""}) {
    try {
      train(config("fixed", {change}), kResume, Logger());
      FAIL() << change << " was accepted";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(change.substr(0, change.find('='))));
    }
  }
  const auto allowed =
      config("fixed", {"train.stop_after=4", "train.recompute=[\"layer\"]", "checkpoint.every=1",
                       "run.threads=1", "run.hardware=\"\""});
  EXPECT_EQ(train(allowed, kResume, Logger()).step, 4);
}

TEST_F(TrainerTest, ADamagedCheckpointIsPassedOverForTheOneBefore) {
  const auto overrides = std::vector<std::string>{"train.steps=20", "checkpoint.every=10"};
  train(config("undamaged", overrides), kQuiet, Logger());
  train(config("damaged", {"train.steps=20", "train.stop_after=15", "checkpoint.every=10"}), kQuiet,
        Logger());
  const fs::path file =
      run_folder("damaged") / "checkpoints" / "step-00000015" / "optimizer.safetensors";
  std::string bytes = read_file(file);
  bytes[bytes.size() - 3] ^= 1;
  write_file(file, bytes);
  EXPECT_EQ(train(config("damaged", overrides), kResume, Logger()).step, 20);
  EXPECT_TRUE(tensors("damaged", 20) == tensors("undamaged", 20));
}

TEST_F(TrainerTest, ARunKilledBeforeItsFirstCheckpointStartsAgain) {
  fs::create_directories(run_folder("early") / "checkpoints" / "step-00000010.partial");
  const auto two_steps = config("early", {"train.steps=2", "optimizer.warmup_steps=1"});
  EXPECT_EQ(train(two_steps, kQuiet, Logger()).step, 2);
}

TEST_F(TrainerTest, AFinishedRunHasNothingLeftToDo) {
  const auto two_steps = config("finished", {"train.steps=2", "optimizer.warmup_steps=1"});
  const double loss = train(two_steps, kQuiet, Logger()).loss;
  const TrainReport again = train(two_steps, kResume, Logger());
  EXPECT_EQ(again.step, 2);
  EXPECT_EQ(again.loss, loss);
  // Nor is anything written to what TensorBoard reads.
  const fs::directory_iterator events(run_folder("finished") / "tensorboard");
  EXPECT_EQ(std::distance(begin(events), end(events)), 1);
  fs::remove(run_folder("finished") / "metrics.jsonl");
  EXPECT_TRUE(std::isnan(train(two_steps, kResume, Logger()).loss));
}

TEST_F(TrainerTest, APictureThatCannotBeDrawnDoesNotEndTheRun) {
  fs::create_directories(run_folder("blind") / "loss.svg" / "in-the-way");
  const auto config =
      this->config("blind", {"train.steps=4", "optimizer.warmup_steps=1", "checkpoint.every=2"});
  ::testing::internal::CaptureStderr();
  const TrainReport report = train(config, kQuiet, Logger());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("loss.svg was not drawn"));
  EXPECT_EQ(report.step, 4);
  EXPECT_FALSE(tensors("blind", 4).empty());
}

TEST_F(TrainerTest, ARunThatCannotFitIsRefusedBeforeItTakesMemory) {
  try {
    train(config("huge", {"model.hidden_size=65536", "model.vocabulary_size=1000000"}), kQuiet,
          Logger());
    FAIL() << "it was started";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(usable_memory().text()));
  }
  EXPECT_FALSE(fs::exists(run_folder("huge")));
}

TEST_F(TrainerTest, OldCheckpointsAreRemovedByTheRule) {
  train(config("pruned", {"train.steps=60", "checkpoint.every=10", "checkpoint.keep=2",
                          "checkpoint.keep_every=30"}),
        kQuiet, Logger());
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(run_folder("pruned") / "checkpoints")) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  EXPECT_THAT(names,
              ::testing::UnorderedElementsAre("step-00000030", "step-00000050", "step-00000060"));
}

TEST_F(TrainerTest, EvaluationCountsEveryHeldOutInstanceOnce) {
  train(config("evaluated", {"train.steps=10", "train.precision=\"fp32\""}), kQuiet, Logger());
  Runtime runtime(host_target(2));
  const LoadedModel model = load_model(run_folder("evaluated"), 2);
  std::vector<Evaluation> evaluations;
  for (const int64_t rows : {1, 3, 8}) {
    const TrainingData data =
        open_data({.directory = (folder_->path() / "data").string(), .context = 32});
    Loader loader(data, {.split = Split::held_out, .rows = rows});
    StandaloneEvaluator evaluator(
        evaluation_passes(write_evaluation(model.config.model, DType::f32, {rows, 32, true})),
        model.weights, runtime);
    evaluations.push_back(mean_evaluation(evaluate_sources(*evaluator, data, rows, 0)));
    EXPECT_EQ(evaluations.back().instances, loader.instances());
    EXPECT_EQ(evaluations.back().targets, loader.instances() * 31);
  }
  EXPECT_NEAR(evaluations[1].loss, evaluations[0].loss, 1e-5);
  EXPECT_NEAR(evaluations[2].loss, evaluations[0].loss, 1e-5);
  EXPECT_NEAR(evaluations[0].perplexity, std::exp(evaluations[0].loss), 1e-9);
}

TEST_F(TrainerTest, ATrainedModelContinuesText) {
  train(config("writer"), kQuiet, Logger());
  Runtime runtime(host_target(2));
  const LoadedModel model = load_model(run_folder("writer"), 2);
  const GenerateOptions greedy{.tokens = 12, .sampling = {.temperature = 0}};
  std::string streamed;
  const Generation result = generate(model, "the cat s", greedy, runtime,
                                     [&](std::string_view piece) { streamed += piece; });
  EXPECT_EQ(streamed, result.text);
  EXPECT_EQ(result.tokens.size(), 12U);
  EXPECT_THAT(result.text, HasSubstr("ees "));
  EXPECT_EQ(generate(model, "the cat s", greedy, runtime).text, result.text);
  EXPECT_THROW(generate(model, "the cat", {.tokens = 1000}, runtime), Error);
}

}  // namespace
}  // namespace tessera
