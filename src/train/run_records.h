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

/// The files of a run beside its checkpoints: metrics, their plot, the trace of a step.
class RunRecords {
 public:
  /// Keeps references to all arguments, which must outlive it.
  RunRecords(const RunConfig& config, Runtime& runtime, const Logger& logger)
      : config_(config), runtime_(runtime), logger_(logger) {}

  /// Opens the metrics for the steps after a position (see MetricsWriter).
  void open(const TrainingPosition& position);
  /// Completes the metrics of a run that ends at a position.
  void complete(const TrainingPosition& position);
  /// Writes a step's metrics. Throws Error if the file system refuses.
  void append(const StepMetrics& metrics) { writer_->append(metrics); }
  /// Writes all metrics through to the disk. Throws Error if the file system refuses.
  void sync() { writer_->sync(); }
  /// Returns the lines of metrics that may not be on the disk (see MetricsFile).
  const std::string& unsaved() const { return writer_->unsaved(); }
  /// Throws Error unless loss.svg can be written.
  void require_picture() const { require_writable(file("loss.svg")); }
  /// Returns the loss of a finished step, or NaN if the metrics lack it.
  double loss_of(int64_t step) const;
  /// Draws loss.svg. Its title has the model's number of parameters and the number of tokens.
  void plot(int64_t parameters, int64_t tokens) const;
  /// Writes trace.json and returns its path. `gemm_peak` is the machine's FLOP/s of matrix
  /// products, `tokens` the number of tokens of the step.
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
