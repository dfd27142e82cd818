#include "plan/account/trace_legend.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "pipeline/action_colour.h"
#include "plot/style.h"
#include "plot/svg.h"

namespace tessera {
namespace {

// In pixels.
constexpr double kLegendLine = 20, kSwatch = 12, kSwatchGap = 18;
constexpr int kLegendFont = 11;
constexpr double kLegendCharacter = 5.5;  // the width of a character of that size

/// The passes that have a colour, in the order of the legend.
constexpr std::array<std::string_view, 4> kLegendPasses{"forward", "recompute", "backward",
                                                        "update"};
constexpr std::string_view kOtherColour = "#c8c8c8";  // of work outside of programs and calls

/// Returns the colour of a pass: that of an action where there is such an action.
std::string pass_colour(std::string_view pass) {
  if (pass == "forward") return action_colour(ActionKind::forward, 0);
  if (pass == "recompute") return action_colour(ActionKind::forward, 1);
  if (pass == "backward") return action_colour(ActionKind::backward, 0);
  if (pass == "update") return action_colour(ActionKind::input_gradients, 0);
  return std::string(kOtherColour);
}

/// Places the entries of a legend in lines.
class LegendDrawing {
 public:
  LegendDrawing(Point corner, double width) : left_(corner.x), width_(width), at_(corner) {}

  void add(const std::vector<std::string>& fills, std::string_view text) {
    const double width = kSwatch * static_cast<double>(fills.size()) + 5 +
                         kLegendCharacter * static_cast<double>(character_count(text));
    if (at_.x > left_ && at_.x + width > left_ + width_) {
      at_ = {left_, at_.y + kLegendLine};
    }
    for (const std::string& fill : fills) {
      svg_ += svg_rectangle(at_, kSwatch, kSwatch, fill);
      at_.x += kSwatch;
    }
    svg_ += svg_text({at_.x + 5, at_.y + 10}, Anchor::start, text, kLegendFont);
    at_.x += width - kSwatch * static_cast<double>(fills.size()) + kSwatchGap;
  }
  TraceLegend legend() const { return {svg_, at_.y + kLegendLine}; }

 private:
  double left_;
  double width_;
  Point at_;
  std::string svg_;
};

}  // namespace

BoxColours::BoxColours(const std::vector<std::vector<NetworkCall>>& calls) {
  for (const std::vector<NetworkCall>& of_rank : calls) {
    for (const NetworkCall& call : of_rank) axes_.insert(call.axes);
  }
}

Colour BoxColours::of(BoxActivity activity, const std::string& name) const {
  constexpr Colour kWhite{255, 255, 255};
  constexpr double kWaiting = 0.7, kUnknown = 0.4;  // weights of white
  switch (activity) {
    case BoxActivity::computing:
      return colour_of_hex(pass_colour(name));
    case BoxActivity::on_its_own:
      return colour_of_hex(kOtherColour);
    case BoxActivity::transferring:
      return of_axes(name);
    case BoxActivity::waiting:
      return mixed(of_axes(name), kWhite, kWaiting);
    case BoxActivity::calling:
      return mixed(of_axes(name), kWhite, kUnknown);
  }
  return kWhite;
}

Colour BoxColours::of_axes(const std::string& axes) const {
  const auto index = std::distance(axes_.begin(), axes_.find(axes));
  return colour_of_hex(colour(static_cast<size_t>(index)));
}

TraceLegend draw_legend(const std::vector<TraceBox>& boxes, const BoxColours& colours,
                        bool has_layers, Point corner, double width) {
  std::set<std::pair<BoxActivity, std::string>> kinds;
  std::set<std::string> axes;
  bool has_other = false;
  for (const TraceBox& box : boxes) {
    kinds.emplace(box.activity, box.name);
    if (box.activity == BoxActivity::computing) {
      has_other |= std::ranges::find(kLegendPasses, box.name) == kLegendPasses.end();
    } else if (box.activity == BoxActivity::on_its_own) {
      has_other = true;
    } else {
      axes.insert(box.name);
    }
  }
  LegendDrawing drawing(corner, width);
  for (const std::string_view pass : kLegendPasses) {
    if (!kinds.contains({BoxActivity::computing, std::string(pass)})) continue;
    drawing.add({pass_colour(pass)}, pass);
  }
  if (has_layers) drawing.add({}, "numbers: layers");
  if (has_other) drawing.add({std::string(kOtherColour)}, "data, and what calls nobody");
  for (const std::string& name : axes) {
    std::vector<std::string> fills;
    std::vector<std::string> words;
    for (const auto& [activity, text] :
         {std::pair(BoxActivity::waiting, "waiting for the last rank"),
          std::pair(BoxActivity::transferring, "transferring"),
          std::pair(BoxActivity::calling, "last rank not known")}) {
      if (!kinds.contains({activity, name})) continue;
      fills.push_back(hex_text(colours.of(activity, name)));
      words.emplace_back(text);
    }
    drawing.add(fills, fmt::format("{}: {}", name, fmt::join(words, ", ")));
  }
  return drawing.legend();
}

}  // namespace tessera
