#include "metrics/metrics.h"

#include <nlohmann/json.hpp>

#include "metrics/metrics_lines.h"

namespace tessera {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr Metric kMetrics[] = {
    {"loss", "train/loss", "loss (nats a token)", true, &StepMetrics::loss},
    {"grad_norm", "train/grad_norm", "gradient norm", true, &StepMetrics::grad_norm},
    {"lr", "train/learning_rate", "learning rate", false, &StepMetrics::lr},
    {"tokens", "train/tokens", "tokens", false, &StepMetrics::tokens},
    {"flops", "train/flops", "useful FLOPs", false, &StepMetrics::flops},
    {"tokens_per_second", "throughput/tokens_per_second", "tokens a second", true,
     &StepMetrics::tokens_per_second},
    {"mfu", "throughput/mfu", "MFU (of the measured peak)", true, &StepMetrics::mfu},
    {"seconds", "throughput/seconds", "seconds a step", true, &StepMetrics::seconds},
    {"memory_bytes", "memory/bytes", "peak memory (bytes)", false, &StepMetrics::memory_bytes},
    {"balance_loss", "router/balance_loss", "load-balance loss", true, &StepMetrics::balance_loss},
    {"router_z_loss", "router/z_loss", "router z-loss", true, &StepMetrics::router_z_loss},
    {"expert_load", "router/expert_load", "fullest expert (of a balanced one)", true,
     &StepMetrics::expert_load},
    {"skipped", "router/skipped", "tokens that visit no expert (part)", true,
     &StepMetrics::skipped},
    {"update_rms", "muon/update_rms", "rms of Muon's updates", true, &StepMetrics::update_rms},
    {"orthogonality_error", "muon/orthogonality_error", "Muon's updates: |U U' - I| / sqrt(n)",
     true, &StepMetrics::orthogonality_error},
    {"held_out_loss", "held_out/loss", "held-out loss (nats a token)", false,
     &StepMetrics::held_out_loss},
    {"phase", "train/phase", "phase", false, &StepMetrics::phase},
};

OrderedJson sources_to_json(const std::vector<SourceMetrics>& sources) {
  OrderedJson json = OrderedJson::object();
  for (const SourceMetrics& source : sources) {
    OrderedJson& entry = json[source.name] = {{"tokens", source.tokens}, {"epochs", source.epochs}};
    if (source.held_out_loss) entry["held_out_loss"] = *source.held_out_loss;
  }
  return json;
}

OrderedJson to_json(const StepMetrics& metrics) {
  OrderedJson json{{"step", metrics.step}};
  for (const Metric& metric : kMetrics) {
    if (const auto* whole = std::get_if<int64_t StepMetrics::*>(&metric.member)) {
      json[std::string(metric.name)] = metrics.*(*whole);
    } else if (const auto* counted =
                   std::get_if<std::optional<int64_t> StepMetrics::*>(&metric.member)) {
      if (metrics.*(*counted)) json[std::string(metric.name)] = *(metrics.*(*counted));
    } else if (const auto value = metric.value(metrics)) {
      json[std::string(metric.name)] = *value;
    }
  }
  if (!metrics.phase_name.empty()) json["phase_name"] = metrics.phase_name;
  if (!metrics.sources.empty()) json["sources"] = sources_to_json(metrics.sources);
  return json;
}

std::vector<SourceMetrics> sources_from_json(const OrderedJson& json) {
  std::vector<SourceMetrics> sources;
  for (const auto& [name, entry] : json.items()) {
    sources.push_back({name, whole_member(entry, "tokens"), number_member(entry, "epochs"), {}});
    if (entry.contains("held_out_loss")) {
      sources.back().held_out_loss = number_member(entry, "held_out_loss");
    }
  }
  return sources;
}

StepMetrics from_json(const OrderedJson& json) {
  StepMetrics metrics;
  metrics.step = whole_member(json, "step");
  for (const Metric& metric : kMetrics) {
    const std::string name(metric.name);
    if (const auto* whole = std::get_if<int64_t StepMetrics::*>(&metric.member)) {
      metrics.*(*whole) = whole_member(json, name);
    } else if (const auto* real = std::get_if<double StepMetrics::*>(&metric.member)) {
      metrics.*(*real) = number_member(json, name);
    } else if (!json.contains(name)) {
      continue;
    } else if (const auto* counted =
                   std::get_if<std::optional<int64_t> StepMetrics::*>(&metric.member)) {
      metrics.*(*counted) = whole_member(json, name);
    } else {
      metrics.*std::get<std::optional<double> StepMetrics::*>(metric.member) =
          number_member(json, name);
    }
  }
  if (json.contains("phase_name")) metrics.phase_name = text_member(json, "phase_name");
  if (json.contains("sources")) metrics.sources = sources_from_json(json["sources"]);
  return metrics;
}

/// The bytes of unsaved lines after which append() calls sync(), so that a run without checkpoints
/// does not keep all of its lines in memory.
constexpr size_t kMostUnsaved = size_t{1} << 20;

/// Returns the lines of the steps up to `last_step`. Ignores a damaged line after the line of that
/// step: it belongs to later steps, and a power cut may leave it.
std::string lines_until(const fs::path& path, int64_t last_step) {
  std::string kept;
  int64_t reached = 0;
  try {
    visit_metrics_lines(path, [&](const OrderedJson& object, std::string_view line) {
      const auto step = object["step"].get<int64_t>();
      if (step > last_step) return;
      kept += line;
      reached = step;
    });
  } catch (const BadMetricsLine& error) {
    if (reached != last_step) {
      throw Error(
          "{}. It was changed or damaged after it was written: mend the line, or move the file "
          "away, and the run goes on without the lines until step {}",
          error.what(), last_step);
    }
  }
  return kept;
}

/// Removes the lines of steps after `last_step` from the file, and replaces the lines of the steps
/// in `unsaved`. Returns `path`.
const fs::path& with_steps_until(const fs::path& path, int64_t last_step,
                                 std::string_view unsaved) {
  if (!unsaved.empty()) {
    const auto first = OrderedJson::parse(unsaved.substr(0, unsaved.find('\n')));
    last_step = whole_member(first, "step") - 1;
  }
  std::string lines;
  if (path_exists(path)) lines = lines_until(path, last_step);
  if (path_exists(path) || !unsaved.empty()) write_file(path, lines.append(unsaved));
  return path;
}

}  // namespace

std::optional<double> Metric::value(const StepMetrics& metrics) const {
  return std::visit(
      [&](auto field) -> std::optional<double> {
        if constexpr (std::is_same_v<decltype(field), int64_t StepMetrics::*>) {
          return static_cast<double>(metrics.*field);
        } else if constexpr (std::is_same_v<decltype(field),
                                            std::optional<int64_t> StepMetrics::*>) {
          if (!(metrics.*field)) return std::nullopt;
          return static_cast<double>(*(metrics.*field));
        } else {
          return metrics.*field;
        }
      },
      member);
}

std::span<const Metric> all_metrics() { return kMetrics; }

MetricsFile::MetricsFile(const fs::path& path, int64_t last_step, std::string_view unsaved)
    : file_(with_steps_until(path, last_step, unsaved)) {}

void MetricsFile::append(const StepMetrics& metrics) {
  unsaved_ += to_json(metrics).dump() + "\n";
  write();
  if (unsaved_.size() > kMostUnsaved) sync();
}

void MetricsFile::write() {
  file_.append(std::string_view(unsaved_).substr(written_));
  written_ = unsaved_.size();
}

void MetricsFile::sync() {
  if (written_ < unsaved_.size()) write();
  file_.sync();
  unsaved_.clear();
  written_ = 0;
}

int64_t missing_steps(const fs::path& path, int64_t last_step) {
  int64_t missing = last_step;
  int64_t before = 0;
  if (!path_exists(path)) return missing;
  visit_metrics_lines(path, [&](const OrderedJson& object, std::string_view /*line*/) {
    const int64_t step = whole_member(object, "step");
    if (step <= before || step > last_step) return;
    --missing;
    before = step;
  });
  return missing;
}

std::vector<StepMetrics> read_metrics(const fs::path& path) {
  std::vector<StepMetrics> result;
  visit_metrics_lines(path, [&](const OrderedJson& object, std::string_view /*line*/) {
    result.push_back(from_json(object));
  });
  return result;
}

}  // namespace tessera
