#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/log.h"
#include "config/run_config.h"
#include "engine/step_trace.h"
#include "metrics/metrics_writer.h"
#include "program/runtime.h"
#include "train/training_state.h"

namespace tessera {

/// What a run writes beside its checkpoints: metrics, their picture, the trace of a step.
class RunRecords {
 public:
  /// Refers to all three, which must outlive it.
  RunRecords(const RunConfig& config, Runtime& runtime, const Logger& logger)
      : config_(config), runtime_(runtime), logger_(logger) {}

  /// Opens the metrics for the steps after a position (see MetricsWriter).
  void open(const TrainingPosition& position);
  /// Completes the metrics up to a position after which no step follows.
  void complete(const TrainingPosition& position);
  /// Writes a step. Throws Error when the file system refuses.
  void append(const StepMetrics& metrics) { writer_->append(metrics); }
  /// Returns when all steps are on the disk. Throws Error when they cannot be brought there.
  void sync() { writer_->sync(); }
  /// See MetricsFile.
  const std::string& unsaved() const { return writer_->unsaved(); }
  /// Throws Error unless loss.svg can be written.
  void require_picture() const { require_writable(file("loss.svg")); }
  /// The loss of a step that is done, or NaN if the metrics lack it.
  double loss_of(int64_t step) const;
  /// Draws loss.svg of a model with so many parameters, after so many tokens.
  void plot(int64_t parameters, int64_t tokens) const;
  /// Writes trace.json, and returns its path. `gemm_peak` is the machine's rate of products,
  /// `tokens` those of the step.
  fs::path write_trace(StepTrace step, double gemm_peak, int64_t tokens) const;

 private:
  MetricsStart start_at(const TrainingPosition& position) const;
  fs::path file(const char* name) const { return fs::path(config_.run.directory) / name; }

  const RunConfig& config_;
  Runtime& runtime_;
  const Logger& logger_;
  std::optional<MetricsWriter> writer_;
};

}  // namespace tessera
