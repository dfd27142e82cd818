#include "train/loss_plot.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

namespace tessera {
namespace {

constexpr double kWidth = 860, kHeight = 420;
constexpr double kLeft = 64, kRight = 24, kTop = 48, kBottom = 52;

/// A linear map from data to picture coordinates.
struct Scale {
  double low, high, from, to;
  double operator()(double value) const {
    return from + (value - low) / std::max(high - low, 1e-12) * (to - from);
  }
};

/// Round numbers (1, 2 or 5 times a power of ten) that cut [low, high] into about `count` parts.
std::vector<double> ticks(double low, double high, int count) {
  const double raw = std::max(high - low, 1e-12) / count;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  const double lead = raw / power;
  const double step = power * (lead < 1.5 ? 1 : lead < 3.5 ? 2 : lead < 7.5 ? 5 : 10);
  std::vector<double> result;
  for (double tick = std::ceil(low / step) * step; tick <= high + step * 1e-9; tick += step) {
    result.push_back(std::abs(tick) < step * 1e-9 ? 0 : tick);
  }
  return result;
}

std::string path(std::span<const std::pair<double, double>> points, const char* style) {
  std::string data;
  for (const auto& [x, y] : points) {
    data += fmt::format("{}{:.1f} {:.1f}", data.empty() ? "M" : "L", x, y);
  }
  return fmt::format("<path d=\"{}\" fill=\"none\" {}/>\n", data, style);
}

std::string text_at(double x, double y, const char* anchor, std::string_view text, int size = 12) {
  return fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" font-size=\"{}\">{}</text>\n", x, y,
      anchor, size, text);
}

std::string escape(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '&') {
      result += "&amp;";
    } else if (c == '<') {
      result += "&lt;";
    } else {
      result += c;
    }
  }
  return result;
}

std::string axes(const Scale& x, const Scale& y) {
  std::string svg;
  for (const double tick : ticks(y.low, y.high, 6)) {
    svg += fmt::format(
        "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" "
        "stroke=\"#ddd\"/>\n",
        x.from, x.to, y(tick));
    svg += text_at(x.from - 8, y(tick) + 4, "end", fmt::format("{:g}", tick));
  }
  for (const double tick : ticks(x.low, x.high, 8)) {
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" "
        "stroke=\"#999\"/>\n",
        x(tick), y.from, y.from + 5);
    svg += text_at(x(tick), y.from + 20, "middle", fmt::format("{:g}", tick));
  }
  svg += fmt::format("<path d=\"M{0} {1}V{2}H{3}\" fill=\"none\" stroke=\"#333\"/>\n", x.from, y.to,
                     y.from, x.to);
  svg += text_at((x.from + x.to) / 2, kHeight - 12, "middle", "step");
  svg += fmt::format(
      "<text transform=\"translate(18 {:.1f}) rotate(-90)\" text-anchor=\"middle\" "
      "font-size=\"12\">loss (nats a token)</text>\n",
      (y.from + y.to) / 2);
  return svg;
}

/// What can be drawn: what is not a number would take the axes and the means with it.
std::vector<StepMetrics> finite_steps(std::span<const StepMetrics> all) {
  std::vector<StepMetrics> metrics;
  for (const StepMetrics& step : all) {
    if (!std::isfinite(step.loss)) continue;
    metrics.push_back(step);
    if (!std::isfinite(step.held_out_loss.value_or(0))) metrics.back().held_out_loss.reset();
  }
  return metrics;
}

/// The scale of losses: all of them, with a margin.
Scale loss_scale(std::span<const StepMetrics> metrics) {
  double low = metrics[0].loss, high = metrics[0].loss;
  for (const StepMetrics& step : metrics) {
    for (const double loss : {step.loss, step.held_out_loss.value_or(step.loss)}) {
      low = std::min(low, loss);
      high = std::max(high, loss);
    }
  }
  const double margin = std::max((high - low) * 0.05, 1e-3);
  return {low - margin, high + margin, kHeight - kBottom, kTop};
}

/// The mean loss of the steps around each one, a sixtieth of the run to either side.
std::vector<double> moving_means(std::span<const StepMetrics> metrics) {
  const auto count = static_cast<int64_t>(metrics.size());
  const int64_t reach = std::max<int64_t>(count / 60, 1);
  std::vector<double> means;
  for (int64_t i = 0; i < count; ++i) {
    // As far to one side as to the other, so that the ends do not lean.
    const int64_t side = std::min({reach, i, count - 1 - i});
    double sum = 0;
    for (int64_t k = i - side; k <= i + side; ++k) sum += metrics[static_cast<size_t>(k)].loss;
    means.push_back(sum / static_cast<double>(2 * side + 1));
  }
  return means;
}

std::string curves(std::span<const StepMetrics> metrics, const Scale& x, const Scale& y) {
  std::vector<std::pair<double, double>> each, mean;
  std::string held_out;
  const std::vector<double> means = moving_means(metrics);
  for (size_t i = 0; i < metrics.size(); ++i) {
    const double at = x(static_cast<double>(metrics[i].step));
    each.emplace_back(at, y(metrics[i].loss));
    mean.emplace_back(at, y(means[i]));
    if (metrics[i].held_out_loss) {
      held_out += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"#d94801\"/>\n",
                              at, y(*metrics[i].held_out_loss));
    }
  }
  return path(each, "stroke=\"#9ecae1\" stroke-width=\"1\"") +
         path(mean, "stroke=\"#08519c\" stroke-width=\"2\"") + held_out +
         text_at(kWidth - kRight, kTop + 14, "end",
                 fmt::format("light: each step; dark: moving mean{}",
                             held_out.empty() ? "" : "; dots: held-out"));
}

}  // namespace

std::string loss_plot(std::span<const StepMetrics> all, const std::string& title) {
  const std::vector<StepMetrics> metrics = finite_steps(all);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" font-family=\"sans-serif\" fill=\"#222\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
      kWidth, kHeight);
  svg += text_at(kWidth / 2, 26, "middle", escape(title), 15);
  if (metrics.empty()) {
    svg += text_at(kWidth / 2, kHeight / 2, "middle", "no steps");
  } else {
    const Scale x{0, static_cast<double>(std::max<int64_t>(metrics.back().step, 1)), kLeft,
                  kWidth - kRight};
    const Scale y = loss_scale(metrics);
    svg += axes(x, y) + curves(metrics, x, y);
  }
  return svg + "</svg>\n";
}

}  // namespace tessera
