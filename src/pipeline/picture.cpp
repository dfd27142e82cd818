#include "pipeline/picture.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "base/words.h"
#include "pipeline/action_colour.h"
#include "plot/style.h"
#include "plot/svg.h"

namespace tessera {
namespace {

// In pixels.
constexpr double kRowHeight = 22, kRowLabels = 52, kFigures = 150, kLegendHeight = 26;
constexpr double kWidth = 760;       // of the rows
constexpr double kWidestUnit = 22;   // of the shortest action
constexpr double kDigitWidth = 6.2;  // of a number of size 10
constexpr double kSwatch = 12;       // a box of the legend

/// Returns the pixels of one unit of time.
double scale_of(const ScheduleFigures& figures) {
  double shortest = figures.makespan;
  for (const RankFigures& rank : figures.ranks) {
    for (const TimedAction& timed : rank.actions) {
      if (timed.end > timed.start) shortest = std::min(shortest, timed.end - timed.start);
    }
  }
  return figures.makespan > 0 ? std::min(kWidth / figures.makespan, kWidestUnit / shortest) : 1;
}

/// Returns the boxes of a rank's actions, and over them the numbers for which there is room. The
/// attributes that they have in common are those of two groups: they are most of the document.
std::string boxes_svg(const ChunkPlacement& placement, const RankFigures& rank, Point corner,
                      double scale) {
  std::string boxes;
  std::string numbers;
  for (const TimedAction& timed : rank.actions) {
    const double x = corner.x + timed.start * scale;
    const double width = (timed.end - timed.start) * scale;
    boxes +=
        svg_rectangle({x, corner.y}, width, kRowHeight - 2,
                      action_colour(timed.action.kind, shade_of(timed.action.chunk, placement)));
    const std::string number = std::to_string(timed.action.micro_batch);
    if (width < kDigitWidth * static_cast<double>(number.size()) + 1) continue;
    numbers += fmt::format("<text x=\"{}\" y=\"{}\">{}</text>\n", pixels(x + width / 2),
                           pixels(corner.y + 14), number);
  }
  return fmt::format(
      "<g stroke=\"#fff\" stroke-width=\"0.5\">\n{}</g>\n"
      "<g text-anchor=\"middle\" font-size=\"10\">\n{}</g>\n",
      boxes, numbers);
}

/// Returns the row of a rank, whose boxes begin at that corner.
std::string row_svg(const PipelineSchedule& schedule, const ScheduleFigures& figures, size_t rank,
                    Point corner, double scale) {
  const RankFigures& row = figures.ranks[rank];
  const double idle = figures.makespan > 0 ? 1 - row.busy / figures.makespan : 0;
  return svg_text({corner.x - 6, corner.y + 15}, Anchor::end, fmt::format("rank {}", rank)) +
         svg_rectangle(corner, figures.makespan * scale, kRowHeight - 2, "#eee") +
         boxes_svg(schedule.placement, row, corner, scale) +
         svg_text({corner.x + figures.makespan * scale + 8, corner.y + 15}, Anchor::start,
                  fmt::format("peak {}, idle {:.1f} %", row.peak_in_flight, 100 * idle), 11);
}

/// Returns the legend: the kinds of actions that occur, from the shade of the first chunk to that
/// of the last.
std::string legend_svg(const PipelineSchedule& schedule, const ScheduleFigures& figures,
                       Point corner) {
  std::set<ActionKind> kinds;
  std::set<double> shades;
  for (const RankFigures& rank : figures.ranks) {
    for (const TimedAction& timed : rank.actions) {
      kinds.insert(timed.action.kind);
      shades.insert(shade_of(timed.action.chunk, schedule.placement));
    }
  }
  std::string svg;
  for (const ActionKind kind : kinds) {
    for (const double shade : shades) {
      svg += svg_rectangle(corner, kSwatch, kSwatch, action_colour(kind, shade));
      corner.x += kSwatch;
    }
    svg += svg_text({corner.x + 5, corner.y + 10}, Anchor::start, word(kind), 11);
    corner.x += 22 + kDigitWidth * static_cast<double>(word(kind).size());
  }
  return svg;
}

}  // namespace

std::string draw(const PipelineSchedule& schedule, const ScheduleFigures& figures) {
  const double scale = scale_of(figures);
  const Point corner{kMargin + kRowLabels, kMargin + kTitleHeight};
  const std::string title =
      fmt::format("{}: {} ranks, {} micro-batches, bubble {:.1f} %", shortened(schedule.name, 40),
                  schedule.placement.ranks, schedule.micro_batches, 100 * figures.bubble);
  std::string svg = svg_text({corner.x, kMargin + 12}, Anchor::start, title, 14);
  double y = corner.y;
  for (size_t rank = 0; rank < figures.ranks.size(); ++rank) {
    svg += row_svg(schedule, figures, rank, {corner.x, y}, scale);
    y += kRowHeight;
  }
  svg += legend_svg(schedule, figures, {corner.x, y + 8});
  // The legend and the title need room, however short the rows are.
  const double width = corner.x + std::max(figures.makespan * scale + kFigures, 420.0);
  return svg_document(width, y + kLegendHeight + 4, title, svg);
}

}  // namespace tessera
