#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/quantile.h"
#include "base/text.h"
#include "plan/blocks/measurement_report.h"
#include "train/bench_schedule.h"

namespace tessera {
namespace {

/// Returns "12.5 % (12.3-12.9)": the median, and the 10th and 90th percentiles.
std::string percent_and_spread(const std::vector<double>& shares) {
  return fmt::format("{:.1f} % ({:.1f}-{:.1f})", 100 * quantile(shares, 0.5),
                     100 * quantile(shares, 0.1), 100 * quantile(shares, 0.9));
}

std::vector<double> makespans(const ScheduleMeasurement& measurement) {
  std::vector<double> result;
  for (const ScheduleFigures& run : measurement.measured) result.push_back(run.makespan);
  return result;
}

std::vector<double> bubbles(const ScheduleMeasurement& measurement) {
  std::vector<double> result;
  for (const ScheduleFigures& run : measurement.measured) result.push_back(run.bubble);
  return result;
}

/// Returns a number of each measured step.
std::vector<double> of_steps(const ScheduleMeasurement& measurement, double StepTimes::*number) {
  std::vector<double> result;
  for (const StepTimes& step : measurement.steps) result.push_back(step.*number);
  return result;
}

/// Returns the sum of a number over a stage's calls and messages.
double of_calls(const PredictedStage& stage, double PredictedSeconds::*number) {
  double sum = 0;
  for (const PredictedCall& call : stage.calls) sum += call.times.*number;
  for (const auto& [kind, times] : stage.messages) sum += times.*number;
  return sum;
}

nlohmann::ordered_json predicted_json(const PredictedStep& step) {
  nlohmann::ordered_json stages = nlohmann::ordered_json::array();
  for (const PredictedStage& stage : step.stages) {
    stages.push_back({{"computing_seconds", stage.computing},
                      {"communication_seconds", of_calls(stage, &PredictedSeconds::seconds)},
                      {"exposed_seconds", of_calls(stage, &PredictedSeconds::exposed)},
                      {"waiting_seconds", of_calls(stage, &PredictedSeconds::waiting)}});
  }
  return {{"seconds", step.seconds}, {"by_stage", stages}};
}

std::string predicted_text(const PredictedStep& step) {
  std::string text = fmt::format("predicted step  {} by the rates of run.hardware\n",
                                 format_seconds(step.seconds));
  for (size_t stage = 0; stage < step.stages.size(); ++stage) {
    const PredictedStage& predicted = step.stages[stage];
    text += fmt::format("  stage {}: {} computing, {} exposed, {} waiting for other stages\n",
                        stage, format_seconds(predicted.computing),
                        format_seconds(of_calls(predicted, &PredictedSeconds::exposed)),
                        format_seconds(of_calls(predicted, &PredictedSeconds::waiting)));
  }
  return text;
}

double micro_batches_per_second(const ScheduleMeasurement& measurement) {
  return measurement.schedule.micro_batches / quantile(makespans(measurement), 0.5);
}

}  // namespace

std::string schedule_json(const ScheduleMeasurement& measurement) {
  nlohmann::ordered_json stages = nlohmann::ordered_json::array();
  for (size_t stage = 0; stage < measurement.arena_bytes.size(); ++stage) {
    const RankFigures& figures = measurement.expected.ranks[stage];
    stages.push_back({{"busy_seconds", figures.busy},
                      {"chunks_in_flight", figures.peak_in_flight},
                      {"peak_bytes", measurement.arena_bytes[stage]}});
  }
  nlohmann::ordered_json json{{"bench", "schedule"},
                              {"schedule", measurement.schedule.name},
                              {"ranks", measurement.ranks},
                              {"stages", measurement.schedule.placement.ranks},
                              {"chunks", measurement.schedule.placement.chunks()},
                              {"micro_batches", measurement.schedule.micro_batches},
                              {"times", word(measurement.lengths.rule)},
                              {"update_computes", measurement.lengths.computes_update},
                              {"makespan_seconds", makespans(measurement)},
                              {"expected_makespan_seconds", measurement.expected.makespan},
                              {"bubble", bubbles(measurement)},
                              {"expected_bubble", measurement.expected.bubble},
                              {"step_seconds", of_steps(measurement, &StepTimes::seconds)},
                              {"update_seconds", of_steps(measurement, &StepTimes::update_seconds)},
                              {"micro_batches_per_second", micro_batches_per_second(measurement)},
                              {"by_stage", stages}};
  if (measurement.predicted) json["predicted_step"] = predicted_json(*measurement.predicted);
  return json.dump() + "\n";
}

std::string schedule_text(const ScheduleMeasurement& measurement) {
  const ChunkPlacement& placement = measurement.schedule.placement;
  Table table({"stage", "busy", "in flight", "peak memory"});
  for (size_t stage = 0; stage < measurement.arena_bytes.size(); ++stage) {
    const RankFigures& figures = measurement.expected.ranks[stage];
    table.add({std::to_string(stage), format_seconds(figures.busy),
               std::to_string(figures.peak_in_flight),
               format_bytes(measurement.arena_bytes[stage])});
  }
  const std::string text = fmt::format(
      "{}: {} stages, {} chunks, {} micro-batches on {} ranks\n{}"
      "makespan        {} (10th-90th percentile of {}); {} by the schedule's clock\n"
      "bubble          {}; {:.1f} % by the schedule's clock\n"
      "micro-batches/s {:.4g}\n"
      "step            {}; {} of it {}\n",
      measurement.schedule.name, placement.ranks, placement.chunks(),
      measurement.schedule.micro_batches, measurement.ranks, table.text(),
      median_and_spread(makespans(measurement)), measurement.measured.size(),
      format_seconds(measurement.expected.makespan), percent_and_spread(bubbles(measurement)),
      100 * measurement.expected.bubble, micro_batches_per_second(measurement),
      median_and_spread(of_steps(measurement, &StepTimes::seconds)),
      format_seconds(quantile(of_steps(measurement, &StepTimes::update_seconds), 0.5)),
      measurement.lengths.computes_update ? "the update" : "the collectives of the update");
  return measurement.predicted ? text + predicted_text(*measurement.predicted) : text;
}

}  // namespace tessera
