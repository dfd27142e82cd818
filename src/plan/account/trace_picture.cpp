#include "plan/account/trace_picture.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/text.h"
#include "plan/account/network_account.h"
#include "plan/account/trace_legend.h"
#include "plan/account/trace_rows.h"
#include "plot/colour.h"
#include "plot/style.h"
#include "plot/svg.h"
#include "plot/ticks.h"

namespace tessera {
namespace {

using std::chrono::nanoseconds;

// In pixels.
constexpr double kRowHeight = 18, kRowGap = 4, kRowLabels = 78;
constexpr double kRankTitle = 22, kRankGap = 10;
constexpr double kRowsWidth = 880;   // of the rows
constexpr double kRightMargin = 28;  // the last label of the axis is around the rows' end
constexpr double kAxisHeight = 26;
constexpr double kNarrow = 0.5;    // narrower boxes are merged
constexpr double kWithBorder = 3;  // wider boxes have a border
constexpr int kBoxFont = 10, kSmallFont = 11;
constexpr double kBoxCharacter = 5.6;  // the width of a character in a box
constexpr int kTicks = 12;
constexpr std::string_view kNoteFill = "fill=\"#666\"";

/// The time that a picture shows, and where a moment is in it.
struct TimeScale {
  nanoseconds from{};
  nanoseconds to{};
  double left = 0;  // the pixel of `from`

  double x(nanoseconds time) const {
    return left + kRowsWidth * seconds_of(time - from) / seconds_of(to - from);
  }
  /// Returns the time that takes so many pixels.
  nanoseconds time_of(double pixels) const {
    return nanoseconds_of(pixels / kRowsWidth * seconds_of(to - from));
  }
};

/// A rank that is drawn.
struct DrawnRank {
  std::string title;
  nanoseconds start{};
  nanoseconds end{};
  nanoseconds exposed{};  // time in calls
  std::vector<TraceRow> rows;
};

/// Throws Error if calls are recorded without the ranks that they call.
void require_groups(const RunTrace& trace, const std::string& file) {
  if (trace.has_groups) return;
  for (const RankTrace& rank : trace.ranks) {
    if (std::ranges::all_of(rank.step.events,
                            [](const TraceEvent& event) { return event.lane == Lane::compute; })) {
      continue;
    }
    throw Error(
        "{} is a trace of an earlier version, which does not say which ranks an operation calls; "
        "expected one that does: {}",
        file, kTraceAdvice);
  }
}

/// Returns the indices of the ranks that are drawn.
std::vector<size_t> indices_of(const RunTrace& trace, const TraceView& view,
                               const std::string& file) {
  std::vector<size_t> indices;
  if (view.ranks.empty()) {
    for (size_t i = 0; i < trace.ranks.size(); ++i) indices.push_back(i);
  }
  for (const int rank : view.ranks) {
    const auto found = std::ranges::lower_bound(trace.ranks, rank, {}, &RankTrace::rank);
    if (found == trace.ranks.end() || found->rank() != rank) {
      throw Error(
          "--ranks names rank {}, which {} lacks; it has {} rank{} from {} to {}: name some "
          "of them",
          rank, file, trace.ranks.size(), trace.ranks.size() == 1 ? "" : "s",
          trace.ranks.front().rank(), trace.ranks.back().rank());
    }
    indices.push_back(static_cast<size_t>(found - trace.ranks.begin()));
  }
  return indices;
}

nanoseconds start_of(const RunTrace& trace) {
  return nanoseconds_of(std::ranges::min(trace.ranks, {}, [](const RankTrace& rank) {
                          return rank.step.start;
                        }).step.start);
}

nanoseconds end_of(const RankTrace& rank) {
  return nanoseconds_of(rank.step.start + rank.step.duration);
}

/// Returns the seconds of the step, from the first rank's start to the last one's end.
double step_seconds(const RunTrace& trace) {
  nanoseconds end{};
  for (const RankTrace& rank : trace.ranks) end = std::max(end, end_of(rank));
  return seconds_of(end - start_of(trace));
}

/// Returns the time of a view as a scale whose rows begin at the pixel `left`.
TimeScale scale_of(const RunTrace& trace, const TraceView& view, const std::string& file,
                   double left) {
  // Of `to`: the labels of the axis have to differ. The seconds are two of a trace's units.
  constexpr double kLeastShare = 1e-6, kLeastSeconds = 2e-9;
  const double seconds = step_seconds(trace);
  const double from = view.from.value_or(0);
  const double to = view.to.value_or(seconds);
  if (seconds < kLeastSeconds) {
    throw Error("the step of {} takes no time; expected one that can be drawn: trace another step",
                file);
  }
  if (from >= seconds) {
    throw Error("--from is {} s, and the step of {} takes {} s; expected less", from, file,
                seconds);
  }
  if (!(from < to)) {
    throw Error(
        "--from is {} s and --to {} s; expected a time that ends after it begins: give a smaller "
        "--from or a larger --to",
        from, to);
  }
  if (to - from < std::max(kLeastShare * to, kLeastSeconds)) {
    throw Error(
        "--from is {} s and --to {} s; expected at least 2 ns and a millionth of --to between "
        "them: give a smaller --from or a larger --to",
        from, to);
  }
  const nanoseconds zero = start_of(trace);
  return {zero + nanoseconds_of(from), zero + nanoseconds_of(to), left};
}

/// Returns the parts of a row's boxes that a picture shows.
std::vector<TraceBox> shown(const std::vector<TraceBox>& boxes, const TimeScale& scale) {
  std::vector<TraceBox> result;
  for (const TraceBox& box : boxes) {
    const bool is_moment = box.start == box.end && box.start >= scale.from && box.end <= scale.to;
    if (!is_moment && (box.end <= scale.from || box.start >= scale.to)) continue;
    TraceBox& part = result.emplace_back(box);
    part.start = std::max(box.start, scale.from);
    part.end = std::min(box.end, scale.to);
  }
  return result;
}

/// Returns what a box may be labelled with, the longest first.
std::vector<std::string> labels_of(const TraceBox& box) {
  switch (box.activity) {
    case BoxActivity::computing: {
      const std::string name = box.block.empty() ? box.name : box.block;
      if (box.layer < 0) return {name};
      return {fmt::format("{} {}", name, box.layer), std::to_string(box.layer)};
    }
    case BoxActivity::on_its_own:
      return {box.block};
    case BoxActivity::transferring:
    case BoxActivity::calling:
      return {box.bytes > 0 ? format_bytes(std::llround(box.bytes)) : box.name};
    case BoxActivity::waiting:
      return {};
  }
  return {};
}

/// Draws the rows of one rank.
class RowDrawing {
 public:
  RowDrawing(const BoxColours& colours, const TimeScale& scale)
      : colours_(colours), scale_(scale) {}

  void add(const std::vector<TraceBox>& boxes, double y) {
    for (const TraceBox& box : boxes) add(box, y);
  }

  /// Returns the boxes, the narrow ones over the others, and the labels. The attributes that they
  /// have in common are those of groups: they are most of the document.
  std::string svg() const {
    return fmt::format(
        "<g stroke=\"#fff\" stroke-width=\"0.5\">\n{}</g>\n<g>\n{}</g>\n"
        "<g text-anchor=\"middle\" font-size=\"{}\">\n{}</g>\n",
        wide_, narrow_, kBoxFont, labels_);
  }
  /// Returns whether a label has the number of a layer.
  bool has_layers() const { return has_layers_; }

 private:
  void add(const TraceBox& box, double y) {
    const double x = scale_.x(box.start);
    const double width = scale_.x(box.end) - x;
    const Colour colour = colours_.of(box.activity, box.name);
    std::string& boxes = width > kWithBorder ? wide_ : narrow_;
    boxes += svg_rectangle({x, y}, std::max(width, kNarrow), kRowHeight, hex_text(colour));
    for (const std::string& label : labels_of(box)) {
      if (width < kBoxCharacter * static_cast<double>(character_count(label)) + 4) continue;
      labels_ += fmt::format("<text x=\"{}\" y=\"{}\" {}>{}</text>\n", pixels(x + width / 2),
                             pixels(y + 13), text_fill_on(colour), xml_text(label));
      has_layers_ |= box.activity == BoxActivity::computing && box.layer >= 0;
      break;
    }
  }

  const BoxColours& colours_;
  const TimeScale& scale_;
  std::string wide_;
  std::string narrow_;
  std::string labels_;
  bool has_layers_ = false;
};

/// The upper and the lower end of a rank's rows.
struct RowSpan {
  double top = 0;
  double bottom = 0;
};

/// Returns the labels of the axis of times, below all rows, and its lines behind them.
std::string axis_svg(const TimeScale& scale, nanoseconds zero, const std::vector<RowSpan>& spans) {
  constexpr double kMilliseconds = 1e3;
  const double from = kMilliseconds * seconds_of(scale.from - zero);
  const double to = kMilliseconds * seconds_of(scale.to - zero);
  const double label_y = spans.back().bottom + 17;
  std::string svg = svg_text({kMargin, label_y}, Anchor::start, "ms", kSmallFont);
  for (const double value : linear_ticks({from, to}, kTicks, false).values) {
    const double x = scale.left + kRowsWidth * (value - from) / (to - from);
    for (const RowSpan& span : spans) {
      svg += svg_path(std::array{Point{x, span.top}, Point{x, span.bottom}}, "stroke=\"#ddd\"");
    }
    svg += svg_text({x, label_y}, Anchor::middle, fmt::format("{}", value), kSmallFont);
  }
  return svg;
}

std::string title_of(const RunTrace& trace, const std::vector<DrawnRank>& ranks) {
  double exposed = 0;  // the mean
  for (const DrawnRank& rank : ranks) {
    exposed += seconds_of(rank.exposed) / static_cast<double>(ranks.size());
  }
  const double seconds = step_seconds(trace);
  return fmt::format("step {}: {}; exposed communication: {} ({:.1f} %){}",
                     trace.ranks.front().step.number, format_seconds(seconds),
                     format_seconds(exposed), seconds > 0 ? 100 * exposed / seconds : 0,
                     ranks.size() > 1 ? fmt::format(", the mean of {} ranks", ranks.size()) : "");
}

/// Returns what a picture shows of the ranks of a view.
std::vector<DrawnRank> drawn_ranks(const RunTrace& trace, const std::vector<size_t>& indices,
                                   const std::vector<std::vector<NetworkCall>>& calls,
                                   const TimeScale& scale) {
  const NetworkAccount account = account_for_network(trace, calls);
  std::vector<DrawnRank> ranks;
  for (const size_t index : indices) {
    const RankTrace& rank = trace.ranks[index];
    DrawnRank& drawn = ranks.emplace_back(DrawnRank{.title = rank.title(),
                                                    .start = nanoseconds_of(rank.step.start),
                                                    .end = end_of(rank),
                                                    .exposed = account.ranks[index].all.exposed(),
                                                    .rows = trace_rows(rank, calls[index])});
    for (TraceRow& row : drawn.rows) row.boxes = shown(row.boxes, scale);
  }
  return ranks;
}

/// Draws the ranks one below the other.
class RanksDrawing {
 public:
  RanksDrawing(const BoxColours& colours, const TimeScale& scale, double top)
      : colours_(colours), scale_(scale), y_(top) {}

  void add(const DrawnRank& rank) {
    const double right = scale_.left + kRowsWidth;
    rows_ += svg_text({kMargin, y_ + 14}, Anchor::start, rank.title, 12, "font-weight=\"bold\"");
    rows_ += svg_text({right, y_ + 14}, Anchor::end,
                      fmt::format("exposed {}", format_seconds(seconds_of(rank.exposed))),
                      kSmallFont, kNoteFill);
    y_ += kRankTitle;
    spans_.push_back({y_ - kRowGap, y_});
    RowDrawing drawing(colours_, scale_);
    for (const TraceRow& row : rank.rows) {
      rows_ += svg_text({scale_.left - 8, y_ + 13}, Anchor::end, row.name, kSmallFont);
      const double begin = scale_.x(std::clamp(rank.start, scale_.from, scale_.to));
      const double end = scale_.x(std::clamp(rank.end, scale_.from, scale_.to));
      grounds_ += svg_rectangle({begin, y_}, end - begin, kRowHeight, "#f2f2f2");
      drawing.add(merged(row.boxes, scale_.time_of(kNarrow)), y_);
      y_ += kRowHeight + kRowGap;
    }
    spans_.back().bottom = y_;
    rows_ += drawing.svg();
    has_layers_ |= drawing.has_layers();
    y_ += kRankGap;
  }

  /// What is behind the lines of the axis.
  const std::string& grounds() const { return grounds_; }
  /// What is before them.
  const std::string& rows() const { return rows_; }
  /// The rows of each rank.
  const std::vector<RowSpan>& spans() const { return spans_; }
  /// Returns whether the number of a layer is in a box.
  bool has_layers() const { return has_layers_; }

 private:
  const BoxColours& colours_;
  const TimeScale& scale_;
  double y_;
  std::vector<RowSpan> spans_;
  bool has_layers_ = false;
  std::string grounds_;
  std::string rows_;
};

}  // namespace

std::string draw(const RunTrace& trace, const TraceView& view, const std::string& file) {
  require_groups(trace, file);
  const TimeScale scale = scale_of(trace, view, file, kMargin + kRowLabels);
  const std::vector<std::vector<NetworkCall>> calls = network_calls(trace);
  const std::vector<DrawnRank> ranks =
      drawn_ranks(trace, indices_of(trace, view, file), calls, scale);
  const BoxColours colours(calls);
  const std::string title = title_of(trace, ranks);
  RanksDrawing drawing(colours, scale, kMargin + kTitleHeight);
  std::vector<TraceBox> boxes;
  for (const DrawnRank& rank : ranks) {
    drawing.add(rank);
    for (const TraceRow& row : rank.rows)
      boxes.insert(boxes.end(), row.boxes.begin(), row.boxes.end());
  }
  std::string svg = svg_text({kMargin, kMargin + 12}, Anchor::start, title, 14) +
                    drawing.grounds() + axis_svg(scale, start_of(trace), drawing.spans()) +
                    drawing.rows();
  const TraceLegend legend = draw_legend(boxes, colours, drawing.has_layers(),
                                         {kMargin, drawing.spans().back().bottom + kAxisHeight + 6},
                                         kRowLabels + kRowsWidth);
  svg += legend.svg;
  double y = legend.bottom;
  if (std::ranges::any_of(
          boxes, [&](const TraceBox& box) { return box.duration() < scale.time_of(kNarrow); })) {
    svg += svg_text({kMargin, y + 10}, Anchor::start,
                    "Boxes narrower than half a pixel are merged. A merged box has the colour of "
                    "most of its time.",
                    kSmallFont, kNoteFill);
    y += kNoteHeight;
  }
  return svg_document(scale.left + kRowsWidth + kRightMargin, y + kMargin - 8, title, svg);
}

}  // namespace tessera
