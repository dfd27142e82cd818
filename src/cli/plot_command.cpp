#include <algorithm>
#include <charconv>
#include <cmath>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/file_options.h"
#include "cli/options.h"
#include "metrics/plot/plot.h"

namespace tessera {
namespace {

struct PlotArguments {
  std::vector<std::string> runs;
  PlotOptions options;
  std::string x{word(PlotAxis::step)};
  std::string range;
  std::string output = "plot.svg";
};

/// Returns a bound of --range; none if the text is empty.
std::optional<double> parse_bound(std::string_view text, const std::string& range) {
  if (text.empty()) return std::nullopt;
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    throw Error("--range is '{}'; expected A:B, A: or :B with numbers such as 100 or 1e9", range);
  }
  return value;
}

void set_range(PlotOptions& options, const std::string& range) {
  if (range.empty()) return;
  const size_t colon = range.find(':');
  if (colon == std::string::npos) {
    throw Error("--range is '{}'; expected A:B, A: or :B", range);
  }
  options.from = parse_bound(std::string_view(range).substr(0, colon), range);
  options.to = parse_bound(std::string_view(range).substr(colon + 1), range);
  if (options.from && options.to && !(*options.from < *options.to)) {
    throw Error("--range is '{}'; its end must lie above its beginning", range);
  }
}

void run_plot(PlotArguments& arguments) {
  const std::string& output = arguments.output;
  if (output != "-" && fs::path(output).extension() != ".svg") {
    throw Error(
        "--output is {}; pictures are SVG, name a file that ends in .svg, or - for standard output",
        output);
  }
  set_range(arguments.options, arguments.range);
  arguments.options.x = from_word<PlotAxis>(arguments.x);
  if (output != "-") require_writable(output);
  const std::vector<RunMetrics> runs = read_runs(arguments.runs);
  const std::string svg = plot_metrics(runs, arguments.options);
  if (output == "-") {
    fmt::print("{}", svg);
    return;
  }
  write_file(output, svg);
  fmt::print("{}: {} of {}\n", output, join(arguments.options.metrics, ", "),
             runs.size() == 1 ? runs[0].name() : fmt::format("{} runs", runs.size()));
}

}  // namespace

void add_plot_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("plot", "Draw metrics of runs as a picture (SVG)");
  auto arguments = std::make_shared<PlotArguments>();
  PlotOptions& options = arguments->options;
  add_input(*command, "RUN", arguments->runs, "Runs' folders or metrics files")->required();
  add_list(*command, "--metric", options.metrics,
           "Metrics to draw, a panel each: loss,grad_norm,... as in metrics.jsonl");
  add_word<PlotAxis>(*command, "--x", arguments->x, "The x axis; seconds: time spent in steps");
  command
      ->add_option("--smooth", options.smooth,
                   "Steps in a mean; 1: no means; left out: a thirtieth of each run")
      ->check(number_from(1));
  command->add_flag("--log-x", options.logarithmic_x, "A logarithmic x axis");
  command->add_flag("--log-y", options.logarithmic_y, "Logarithmic y axes");
  command->add_option("--range", arguments->range, "A:B, A: or :B, the part of the x axis to show");
  command->add_option("--title", options.title,
                      "The title; left out: the run's name, if it is one run");
  add_output(*command, "--output", arguments->output, "The picture; -: standard output")
      ->capture_default_str();
  command->callback([arguments] { run_plot(*arguments); });
}

}  // namespace tessera
