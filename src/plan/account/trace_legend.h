#pragma once

#include <set>
#include <string>
#include <vector>

#include "plan/account/network_calls.h"
#include "plan/account/trace_rows.h"
#include "plot/colour.h"
#include "plot/curve.h"

namespace tessera {

// The colours in the picture of a step, and the legend that explains them.

/// Gives boxes their colours. Passes have those of actions. The axes of a trace, whose calls are
/// `calls`, have colours of their own, in the order of their names: lighter while a call waits.
class BoxColours {
 public:
  explicit BoxColours(const std::vector<std::vector<NetworkCall>>& calls);

  Colour of(BoxActivity activity, const std::string& name) const;

 private:
  Colour of_axes(const std::string& axes) const;

  std::set<std::string> axes_;
};

/// A legend as a part of an SVG document.
struct TraceLegend {
  std::string svg;
  double bottom = 0;  ///< the pixel below its last line
};

/// Returns the legend of what boxes show, in lines of at most `width` pixels. `has_layers` says
/// whether boxes have the numbers of layers.
TraceLegend draw_legend(const std::vector<TraceBox>& boxes, const BoxColours& colours,
                        bool has_layers, Point corner, double width);

}  // namespace tessera
