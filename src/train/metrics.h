#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/file.h"

namespace tessera {

/// What one optimizer step reports: one object a line in metrics.jsonl.
struct StepMetrics {
  int64_t step = 0;  ///< counted from 1
  double loss = 0;   ///< cross-entropy, nats a target token
  double grad_norm = 0;
  double lr = 0;
  int64_t tokens = 0;  ///< since the start of the run
  double tokens_per_second = 0;
  double mfu = 0;            ///< of the measured GEMM peak, 0 to 1
  double seconds = 0;        ///< that the step took
  int64_t memory_bytes = 0;  ///< peak of the pool
  double balance_loss = 0;
  double router_z_loss = 0;
  double expert_load = 0;  ///< the fullest expert's tokens over the balanced number
  std::optional<double> held_out_loss;
};

/// Appends steps to a metrics.jsonl, each line complete or absent.
class MetricsFile {
 public:
  /// Opens `path` for the steps after `last_step`: lines of later steps, which a killed run may
  /// have left beyond the checkpoint that is resumed, are removed. Throws Error when it cannot be
  /// written.
  MetricsFile(fs::path path, int64_t last_step);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  /// Writes one line; throws Error when the file system refuses it.
  void append(const StepMetrics& metrics);

 private:
  fs::path path_;
  int descriptor_ = -1;
};

/// Reads a metrics.jsonl; throws Error naming the line that is not valid. A last line without its
/// end, as a kill may leave it, is passed over; a number that was not finite reads as NaN.
std::vector<StepMetrics> read_metrics(const fs::path& path);

}  // namespace tessera
