// The table kMetrics, the JSON of a step that follows from it, and MetricsFile. The file keeps the
// lines that may not be on the disk in unsaved_, so that checkpoints can save them.

#include "metrics/metrics.h"

#include <type_traits>

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

// Whether a pointer to a member of StepMetrics points to a whole number, and to an optional one.
template <typename Member>
constexpr bool is_whole = std::is_same_v<Member, int64_t StepMetrics::*> ||
                          std::is_same_v<Member, std::optional<int64_t> StepMetrics::*>;
template <typename Member>
constexpr bool is_optional = std::is_same_v<Member, std::optional<int64_t> StepMetrics::*> ||
                             std::is_same_v<Member, std::optional<double> StepMetrics::*>;

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
    std::visit(
        [&](auto field) {
          const auto& number = metrics.*field;
          if constexpr (is_optional<decltype(field)>) {
            if (number) json[std::string(metric.name)] = *number;
          } else {
            json[std::string(metric.name)] = number;
          }
        },
        metric.member);
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
    std::visit(
        [&](auto field) {
          if (is_optional<decltype(field)> && !json.contains(name)) return;
          if constexpr (is_whole<decltype(field)>) {
            metrics.*field = whole_member(json, name);
          } else {
            metrics.*field = number_member(json, name);
          }
        },
        metric.member);
  }
  if (json.contains("phase_name")) metrics.phase_name = text_member(json, "phase_name");
  if (json.contains("sources")) metrics.sources = sources_from_json(json["sources"]);
  return metrics;
}

/// Above this many bytes of unsaved lines, append() calls sync(). A run without checkpoints would
/// otherwise keep all of its lines in memory.
constexpr size_t kMostUnsavedBytes = size_t{1} << 20;

/// Returns the lines of the steps up to `last_step`. Ignores damaged lines after the line of that
/// step: they belong to later steps, and a power cut may leave them.
std::string lines_until(const fs::path& path, int64_t last_step) {
  std::string lines;
  int64_t last_read = 0;  // the step of the last kept line
  try {
    visit_metrics_lines(path, [&](const OrderedJson& object, std::string_view line) {
      const auto step = object["step"].get<int64_t>();
      if (step > last_step) return;
      lines += line;
      last_read = step;
    });
  } catch (const BadMetricsLine& error) {
    if (last_read != last_step) {
      throw Error(
          "{}. It was changed or damaged after it was written: mend the line, or move the file "
          "away, and the run goes on without the lines until step {}",
          error.what(), last_step);
    }
  }
  return lines;
}

/// Prepares a file for MetricsFile: removes the lines of steps after `last_step`, and replaces the
/// lines of the steps in `unsaved`. Returns `path`.
const fs::path& cut_to_steps(const fs::path& path, int64_t last_step, std::string_view unsaved) {
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
  return std::visit([&](auto field) { return std::optional<double>(metrics.*field); }, member);
}

std::span<const Metric> all_metrics() { return kMetrics; }

MetricsFile::MetricsFile(const fs::path& path, int64_t last_step, std::string_view unsaved)
    : file_(cut_to_steps(path, last_step, unsaved)) {}

void MetricsFile::append(const StepMetrics& metrics) {
  unsaved_ += to_json(metrics).dump() + "\n";
  write_unwritten();
  if (unsaved_.size() > kMostUnsavedBytes) sync();
}

void MetricsFile::write_unwritten() {
  file_.append(std::string_view(unsaved_).substr(written_));
  written_ = unsaved_.size();
}

void MetricsFile::sync() {
  if (written_ < unsaved_.size()) write_unwritten();
  file_.sync();
  unsaved_.clear();
  written_ = 0;
}

int64_t missing_steps(const fs::path& path, int64_t last_step) {
  int64_t missing = last_step;
  int64_t previous = 0;
  if (!path_exists(path)) return missing;
  visit_metrics_lines(path, [&](const OrderedJson& object, std::string_view /*line*/) {
    const int64_t step = whole_member(object, "step");
    if (step <= previous || step > last_step) return;
    --missing;
    previous = step;
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
