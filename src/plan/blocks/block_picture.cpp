// Draws the measurements of blocks as SVG documents.

#include <fmt/format.h>

#include "plan/blocks/measurement_report.h"
#include "plot/chart.h"

namespace tessera {
namespace {

/// Returns a line with a marker at each point.
Curve with_markers(size_t run, const std::vector<Point>& points) {
  return {.run = run, .faint = {}, .line = points, .markers = points};
}

std::string title(const char* measured, const MeasuredOn& on) {
  return fmt::format("{} on {} ({} threads, {})", measured, on.processor.name, on.processor.threads,
                     word(on.precision));
}

Chart chart_of_passes(std::string title, ChartAxis x, std::string y,
                      const std::vector<Point>& forward, const std::vector<Point>& both,
                      std::string note) {
  return {.title = std::move(title),
          .runs = {"forward", "forward and backward"},
          .x = std::move(x),
          .panels = {{std::move(y), {with_markers(0, forward), with_markers(1, both)}}},
          .note = std::move(note)};
}

std::vector<Point> milliseconds_by_run(std::span<const double> seconds) {
  std::vector<Point> points;
  for (const double run_seconds : seconds) {
    points.push_back({static_cast<double>(points.size() + 1), run_seconds * 1e3});
  }
  return points;
}

}  // namespace

std::string MixtureReport::picture() const {
  const auto runs = static_cast<double>(measurement.forward_seconds.size());
  return draw(chart_of_passes(
      title("Mixture of experts", on), {.label = "run", .range = {0.5, runs + 0.5}, .whole = true},
      "ms", milliseconds_by_run(measurement.forward_seconds),
      milliseconds_by_run(measurement.forward_backward_seconds),
      fmt::format("{} tokens of {}, {} experts of {}, {} a token", sizes.tokens, sizes.hidden,
                  sizes.experts, sizes.expert_size, sizes.experts_per_token)));
}

std::string AttentionReport::picture() const {
  std::vector<std::pair<int64_t, PassRates>> rates;
  for (const Length& length : lengths) {
    rates.emplace_back(length.sizes.tokens, pass_rates(length.block, length.measurement));
  }
  return attention_picture(lengths.front().sizes, rates, on);
}

std::string attention_picture(const AttentionBlockSizes& sizes,
                              std::span<const std::pair<int64_t, PassRates>> rates,
                              const MeasuredOn& on) {
  std::vector<Point> forward;
  std::vector<Point> both;
  for (const auto& [tokens, rate] : rates) {
    forward.push_back({static_cast<double>(tokens), rate.forward * 1e-9});
    both.push_back({static_cast<double>(tokens), rate.forward_backward * 1e-9});
  }
  // The margin gives a single length a range too.
  constexpr double kMargin = 1.3;
  const Range range{forward.front().x / kMargin, forward.back().x * kMargin};
  const std::string documents =
      sizes.documents > 0 ? fmt::format(", {} documents", sizes.documents) : "";
  return draw(chart_of_passes(
      title("Causal attention", on), {.label = "tokens", .range = range, .logarithmic = true},
      "GFLOP/s", forward, both,
      fmt::format("{} heads of {} on {} key-value heads{}; median run of each length", sizes.heads,
                  sizes.head_size, sizes.kv_heads, documents)));
}

}  // namespace tessera
