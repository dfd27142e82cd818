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

/// What one source of a mix has given so far.
struct SourceMetrics {
  std::string name;
  int64_t tokens = 0;                   ///< since the start of the run
  double epochs = 0;                    ///< of its training split
  std::optional<double> held_out_loss;  ///< of the steps that end with an evaluation

  bool operator==(const SourceMetrics&) const = default;
};

/// What one optimizer step reports: one object a line in metrics.jsonl. all_metrics() says how each
/// number is called.
struct StepMetrics {
  int64_t step = 0;  ///< counted from 1
  double loss = 0;   ///< cross-entropy, nats a target token
  double grad_norm = 0;
  double lr = 0;
  int64_t tokens = 0;           ///< since the start of the run
  std::optional<double> flops;  ///< useful ones since the start of the run
  double tokens_per_second = 0;
  double mfu = 0;            ///< of the measured GEMM peak, 0 to 1
  double seconds = 0;        ///< that the step took
  int64_t memory_bytes = 0;  ///< of the arena that the run has reserved
  // Of mixtures of experts:
  std::optional<double> balance_loss;
  std::optional<double> router_z_loss;
  std::optional<double> expert_load;  ///< the fullest expert's tokens over the balanced number
  // Of the steps that end with an evaluation:
  std::optional<double> held_out_loss;
  /// Of mixes of data; in metrics.jsonl {"NAME": {"tokens": ..., "epochs": ...}, ...}.
  std::vector<SourceMetrics> sources;
};

/// One number of StepMetrics as files and pictures know it. Who adds a member to StepMetrics adds a
/// line to the table behind all_metrics(), and all of them have it.
struct Metric {
  std::string_view name;   ///< in metrics.jsonl and metrics.csv and for `tessera plot`
  std::string_view tag;    ///< in TensorBoard
  std::string_view label;  ///< at a picture's axis, with the unit
  bool noisy;              ///< differs from step to step by chance, so that pictures smooth it
  /// An optional one is absent where a step has no such number.
  std::variant<int64_t StepMetrics::*, double StepMetrics::*, std::optional<double> StepMetrics::*>
      member;

  /// The number of that step, if it has one.
  std::optional<double> value(const StepMetrics& metrics) const;
};

/// All numbers of a step but its own, in the order in which they are written.
std::span<const Metric> all_metrics();

/// Appends steps to a metrics.jsonl, each line complete or absent.
class MetricsFile {
 public:
  /// Opens `path` for the steps after `last_step`: lines of later steps, which a killed run may
  /// have left beyond the checkpoint that is resumed, are removed. Throws Error when it cannot be
  /// written.
  MetricsFile(const fs::path& path, int64_t last_step);

  /// Writes one line; throws Error when the file system refuses it.
  void append(const StepMetrics& metrics);
  /// See AppendFile.
  void sync() { file_.sync(); }

 private:
  AppendFile file_;
};

/// How many of the steps 1 to `last_step` a metrics.jsonl lacks; all where there is none.
int64_t missing_steps(const fs::path& path, int64_t last_step);

/// Reads a metrics.jsonl; throws Error naming the line that is not valid. A last line without its
/// end, as a kill may leave it, is passed over; a number that was not finite reads as NaN.
std::vector<StepMetrics> read_metrics(const fs::path& path);

}  // namespace tessera
