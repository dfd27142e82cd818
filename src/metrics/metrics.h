#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/append_file.h"
#include "base/file.h"

namespace tessera {

/// The progress of training on one source of a mix.
struct SourceMetrics {
  std::string name;
  int64_t tokens = 0;                   ///< since the start of the run
  double epochs = 0;                    ///< passes over its training split
  std::optional<double> held_out_loss;  ///< set if the step ends with an evaluation

  bool operator==(const SourceMetrics&) const = default;
};

/// The report of one optimizer step. metrics.jsonl holds one such object per line. all_metrics()
/// gives each number its name.
struct StepMetrics {
  int64_t step = 0;  ///< counted from 1
  double loss = 0;   ///< cross-entropy, nats per target token
  double grad_norm = 0;
  double lr = 0;
  int64_t tokens = 0;           ///< since the start of the run
  std::optional<double> flops;  ///< useful FLOPs since the start of the run
  double tokens_per_second = 0;
  double mfu = 0;            ///< share of the measured GEMM peak, 0 to 1
  double seconds = 0;        ///< duration of the step
  int64_t memory_bytes = 0;  ///< size of the arena that the run has reserved
  // For mixtures of experts:
  std::optional<double> balance_loss;
  std::optional<double> router_z_loss;
  std::optional<double> expert_load;  ///< tokens of the fullest expert over the balanced number
  std::optional<double> skipped;      ///< part of the tokens that routers sent to no expert
  // With Muon:
  std::optional<double> update_rms;           ///< of its updates, before the learning rate
  std::optional<double> orthogonality_error;  ///< of its updates (see MuonMeasures::deviation())
  // For steps that end with an evaluation:
  std::optional<double> held_out_loss;
  // For runs of several phases:
  std::optional<int64_t> phase;  ///< number of the phase, counted from 1
  std::string phase_name;        ///< empty without phases
  /// For mixes of data. In metrics.jsonl: {"NAME": {"tokens": ..., "epochs": ...}, ...}.
  std::vector<SourceMetrics> sources;
};

/// One number of StepMetrics, with its names in files and pictures. A new number in StepMetrics
/// needs a line in the table that all_metrics() returns; all files and pictures then have it.
struct Metric {
  std::string_view name;   ///< in metrics.jsonl, in metrics.csv and for `tessera plot`
  std::string_view tag;    ///< in TensorBoard
  std::string_view label;  ///< at the axis of a picture, with the unit
  bool noisy;              ///< the number differs from step to step by chance; pictures smooth it
  /// A pointer to the member. An optional member is empty if a step has no such number.
  std::variant<int64_t StepMetrics::*, double StepMetrics::*, std::optional<double> StepMetrics::*,
               std::optional<int64_t> StepMetrics::*>
      member;

  /// Returns the number of a step, if it has one.
  std::optional<double> value(const StepMetrics& metrics) const;
};

/// Returns all numbers of a step but `step` and those of `sources`, in the order of writing.
std::span<const Metric> all_metrics();

/// Appends steps to a metrics.jsonl. Each line is complete or absent.
class MetricsFile {
 public:
  /// Opens `path` for the steps after `last_step`. Removes the lines of later steps, which a killed
  /// run may have written after the checkpoint that is resumed. `unsaved` is what unsaved()
  /// returned when the checkpoint was saved: it replaces the file's lines of the same steps and is
  /// then on the disk. Throws Error when the file cannot be written, and when a line up to
  /// `last_step` is not valid.
  MetricsFile(const fs::path& path, int64_t last_step, std::string_view unsaved = "");

  /// Writes the line of one step, after lines that could not be written before. Calls sync() when
  /// the lines since the last one have grown long. Throws Error when the file cannot be written.
  void append(const StepMetrics& metrics);
  /// Waits until all lines are in the file and on the disk. Throws Error when this fails.
  void sync();
  /// Returns the lines that may not be on the disk: all since the last successful sync().
  const std::string& unsaved() const { return unsaved_; }

 private:
  void write_unwritten();

  AppendFile file_;
  std::string unsaved_;
  size_t written_ = 0;  ///< bytes of unsaved_ that are in the file
};

/// Returns how many of the steps 1 to `last_step` are missing from a metrics.jsonl: all of them if
/// there is no file.
int64_t missing_steps(const fs::path& path, int64_t last_step);

/// Returns the steps of a metrics.jsonl. Skips an incomplete last line, which a kill may leave. A
/// number that was not finite reads as NaN. Throws Error, naming the line, when a line is not
/// valid.
std::vector<StepMetrics> read_metrics(const fs::path& path);

}  // namespace tessera
