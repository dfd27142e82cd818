#include "inference/evaluate.h"

#include <algorithm>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/usable_memory.h"
#include "comm/tensor_piece.h"
#include "inference/evaluate_checkpoint.h"
#include "inference/evaluation_task.h"
#include "inference/rank_weights.h"
#include "plan/programs.h"
#include "support/error_of.h"
#include "support/prepared_data.h"
#include "support/small_model.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::SmallModel;

TEST(Evaluate, ABatchIsNoLargerThanTheInstancesAtHand) {
  const TemporaryFolder folder;
  testing::prepare_small_data(folder.path());
  const TrainingData data =
      open_data({.directory = (folder.path() / "data").string(), .context = 32});
  const int64_t all = data.sources.front().instances->instances(Split::held_out);
  ASSERT_GT(all, 3);
  EXPECT_EQ(evaluation_rows(data, 2, 0), 2);
  EXPECT_EQ(evaluation_rows(data, 1 << 30, 0), all);
  EXPECT_EQ(evaluation_rows(data, 1 << 30, 3), 3);
  EXPECT_EQ(evaluation_rows(data, 2, 3), 2);
  EXPECT_EQ(evaluation_rows(data, 1 << 30, 1 << 30), all);
}

TEST(Evaluate, WhatDoesNotFitTheMachineIsRefusedBeforeItIsTaken) {
  SmallModel small(257);
  const ModelConfig& config = small.model.config.model;
  const auto require_memory = [&](const ProgramSize& size) {
    const EvaluationPasses passes = evaluation_passes(write_evaluation(config, DType::f32, size));
    require_evaluation_memory(evaluation_bytes(passes, small.model.weights, small.runtime.target()),
                              small.model.weights, size, small.runtime);
  };
  EXPECT_NO_THROW(require_memory({8, 32}));
  const auto refusal_of = [&](int64_t rows, int64_t context) {
    return error_of([&] { require_memory({rows, context}); });
  };
  EXPECT_THAT(refusal_of(1 << 30, 4096),
              AllOf(HasSubstr("1073741824 sequences of 4096 tokens at once take "),
                    HasSubstr("lower --batch")));
  // What fits by its largest value alone, and not with all that is there beside it.
  const int64_t rows = usable_memory().bytes / (2 * 16 * 4);  // of half the memory in hidden values
  EXPECT_THAT(refusal_of(rows, 1), HasSubstr("sequences of 1 tokens at once take "));
}

/// The ranks that are threads of one process, or the processes of one machine.
TEST(Evaluate, TheMemoryIsThatOfTheStagesOfTheRanks) {
  SmallModel small(257, /*zero=*/false, /*layers=*/3);
  const Mesh mesh({.pipeline = 2});
  const CheckpointEvaluationOptions options;
  EvaluationTask task{
      .options = options,
      .model = std::move(small.model),
      .data = {},
      .mesh = mesh,
      .passes = {.model = {},
                 .size = {.sequences = 1, .context = 64},
                 .recompute = {},
                 .experts = {},
                 .placement = loop_placement(2, 1),
                 .ranges = {{.layers = {.first = 0, .end = 2}, .embedding = true, .head = false},
                            {.layers = {.first = 2, .end = 3}, .embedding = false, .head = true}}}};
  task.passes.model = task.model.config.model;
  const auto bytes_of = [&](int rank) {
    const EvaluationPasses passes = write_evaluation_passes(task.passes, {mesh, rank});
    return evaluation_bytes(passes, shared_weights(task.model, passes), small.runtime.target());
  };
  const auto require_memory = [&](const std::vector<int>& ranks) {
    task.require_memory(small.runtime, ranks, /*copies=*/1);
  };
  // So many sequences that the larger stage takes three quarters of the memory, and both take more
  // than all.
  constexpr int64_t kSome = 1 << 12;
  task.passes.size.sequences = kSome;
  const auto larger = static_cast<double>(std::max(bytes_of(0), bytes_of(1)));
  const auto usable = static_cast<double>(usable_memory().bytes);
  task.passes.size.sequences = static_cast<int64_t>(0.75 * usable / larger * kSome);
  ASSERT_GT(static_cast<double>(bytes_of(0) + bytes_of(1)), 1.2 * usable);
  EXPECT_NO_THROW(require_memory({0}));
  EXPECT_NO_THROW(require_memory({1}));
  EXPECT_THAT(error_of([&] { require_memory({0, 1}); }), HasSubstr("lower --batch"));
}

/// A rank whose stage has a unit whole shares its memory with the model. A tied head's table is on
/// both stages.
TEST(Evaluate, WholeUnitsAreSharedAndPiecesAreCopied) {
  for (const int tensor : {1, 2}) {
    SmallModel small(257, /*zero=*/false, /*layers=*/2, /*tied_head=*/true);
    const LoadedModel& model = small.model;
    const Mesh mesh({.tensor = tensor, .pipeline = 2});
    const PassesToWrite passes{
        .model = model.config.model,
        .size = {.sequences = 1, .context = 64},
        .recompute = {},
        .experts = {},
        .placement = loop_placement(2, 1),
        .ranges = {{.layers = {.first = 0, .end = 1}, .embedding = true, .head = false},
                   {.layers = {.first = 1, .end = 2}, .embedding = false, .head = true}}};
    for (int rank = 0; rank < mesh.ranks(); ++rank) {
      SCOPED_TRACE(fmt::format("rank {} of {}", rank, mesh.text()));
      const EvaluationPasses written = write_evaluation_passes(passes, {mesh, rank});
      const GivenTensors shared = shared_weights(model, written);
      const GivenTensors weights = rank_weights(model, written);
      const ParameterList& parameters = written.chunks.front().parameters;
      EXPECT_EQ(weights.size(), parameters.units().size()) << "of this stage alone";
      bool has_table = false;
      for (const ParameterSpec& spec : parameters.specs()) {
        SCOPED_TRACE(spec.name);
        has_table = has_table || spec.role == ParameterRole::embedding;
        const std::string& unit = parameters.units()[static_cast<size_t>(spec.unit_index)].name;
        const auto whole =
            std::ranges::find(model.parameters.specs(), spec.name, &ParameterSpec::name);
        ASSERT_NE(whole, model.parameters.specs().end());
        const Tensor expected =
            model.weight(static_cast<size_t>(whole - model.parameters.specs().begin()));
        const Tensor found = weights.at(unit).view(spec.unit_offset, spec.piece_shape);
        const TensorPiece piece(mesh, spec.distribution, spec.shape, rank);
        EXPECT_EQ(shared.contains(unit), tensor == 1 || piece.is_whole());
        EXPECT_EQ(found.raw() == expected.raw(), shared.contains(unit));
        for (int64_t i = 0; i < found.elements(); ++i) {
          const auto of_whole = static_cast<size_t>(piece.element_of_whole(i));
          EXPECT_EQ(found.values<float>()[static_cast<size_t>(i)],
                    expected.values<float>()[of_whole]);
        }
      }
      EXPECT_TRUE(has_table);
    }
  }
}

TEST(Evaluate, ReportsSayThatNothingIsDropped) {
  CheckpointEvaluation report{.checkpoint = "run"};
  EXPECT_THAT(report.text(), Not(HasSubstr("dropped")));
  EXPECT_FALSE(nlohmann::json::parse(report.json()).contains("dropped_tokens"));
  report.capacity_factor = 1.25;
  EXPECT_THAT(report.text(), HasSubstr("no token was dropped: model.capacity_factor (1.25)"));
  EXPECT_EQ(nlohmann::json::parse(report.json())["dropped_tokens"], 0);
}

TEST(Evaluate, ATokenThatTheModelHasNotIsNamedWithItsPlace) {
  const TemporaryFolder folder;
  testing::prepare_small_data(folder.path());
  const TrainingData data =
      open_data({.directory = (folder.path() / "data").string(), .context = 32});
  SmallModel small('w');  // the text has w, x, y
  StandaloneEvaluator evaluator(
      evaluation_passes(write_evaluation(small.model.config.model, DType::f32, {2, 32})),
      small.model.weights, small.runtime);
  EXPECT_THAT(error_of([&] { evaluate_sources(*evaluator, data, 2, 0); }),
              AllOf(HasSubstr("held_out-00000.npy: token "),
                    HasSubstr("but the model has a vocabulary of 119")));
}

}  // namespace
}  // namespace tessera
