#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/text.h"
#include "hardware/collective_rate.h"
#include "plot/chart.h"

namespace tessera {
namespace {

/// Returns the heading of a table: its ranks and its dtype.
std::string heading(const CollectiveRate& rate) {
  return fmt::format("{}, {}", rate.ranks.text(), dtype_name(rate.dtype));
}

/// Returns the rates grouped by heading, in the order of the first rate of each.
std::vector<std::pair<std::string, std::vector<CollectiveRate>>> by_heading(
    const std::vector<CollectiveRate>& rates) {
  std::vector<std::pair<std::string, std::vector<CollectiveRate>>> parts;
  for (const CollectiveRate& rate : rates) {
    const auto found =
        std::ranges::find(parts, heading(rate), [](const auto& part) { return part.first; });
    if (found != parts.end()) {
      found->second.push_back(rate);
    } else {
      parts.push_back({heading(rate), {rate}});
    }
  }
  return parts;
}

std::string table_text(const std::vector<CollectiveRate>& rates,
                       const std::function<std::string(const CollectiveRate&)>& cell) {
  std::set<Collective> collectives;
  // Sizes are rounded up to whole elements for each rank, a little differently by collective.
  std::map<int64_t, std::map<Collective, std::string>> rows;
  for (const CollectiveRate& rate : rates) {
    collectives.insert(rate.collective);
    rows[rate.bytes][rate.collective] = cell(rate);
  }
  std::vector<std::string> header{"bytes"};
  for (const Collective collective : collectives) header.emplace_back(word(collective));
  Table table(header);
  for (const auto& [bytes, cells] : rows) {
    std::vector<std::string> row{format_bytes(bytes)};
    for (const Collective collective : collectives) {
      const auto found = cells.find(collective);
      row.push_back(found == cells.end() ? "" : found->second);
    }
    table.add(row);
  }
  return table.text();
}

}  // namespace

std::string collectives_text(const std::vector<CollectiveRate>& rates) {
  std::string text;
  for (const auto& [heading, group_rates] : by_heading(rates)) {
    text += fmt::format("{}: bus bandwidth, GB/s\n{}\n", heading,
                        table_text(group_rates, [](const CollectiveRate& rate) {
                          return fmt::format("{:.3f}", rate.bus_bandwidth() * 1e-9);
                        }));
    text += fmt::format("{}: microseconds of a call\n{}\n", heading,
                        table_text(group_rates, [](const CollectiveRate& rate) {
                          return fmt::format("{:.1f}", rate.best * 1e6);
                        }));
  }
  return text;
}

std::string collectives_picture(const std::vector<CollectiveRate>& rates) {
  Chart chart{.title = "Collectives",
              .runs = {},
              .x = {.label = "bytes", .logarithmic = true},
              .logarithmic_y = true,
              .panels = {{"GB/s (bus)", {}}, {"microseconds", {}}},
              .note =
                  "best of each size; bus bandwidth: the bytes that each rank must send, over "
                  "the time"};
  const bool one_heading = by_heading(rates).size() == 1;
  int64_t least = rates.front().bytes;
  int64_t most = least;
  std::map<std::string, size_t> numbers;
  for (const CollectiveRate& rate : rates) {
    const std::string name = one_heading
                                 ? std::string(word(rate.collective))
                                 : fmt::format("{}, {}", word(rate.collective), heading(rate));
    const auto [found, is_new] = numbers.emplace(name, numbers.size());
    if (is_new) {
      chart.runs.push_back(name);
      for (Panel& panel : chart.panels) panel.curves.push_back({.run = found->second});
    }
    const auto add = [&, number = found->second](Panel& panel, double y) {
      Curve& curve = panel.curves[number];
      curve.line.push_back({static_cast<double>(rate.bytes), y});
      curve.markers = curve.line;
    };
    add(chart.panels[0], rate.bus_bandwidth() * 1e-9);
    add(chart.panels[1], rate.best * 1e6);
    least = std::min(least, rate.bytes);
    most = std::max(most, rate.bytes);
  }
  if (one_heading) chart.title = "Collectives of " + heading(rates.front());
  for (Panel& panel : chart.panels) {
    for (Curve& curve : panel.curves) std::ranges::sort(curve.line, {}, &Point::x);
  }
  chart.x.range = {static_cast<double>(least) / 1.3, static_cast<double>(most) * 1.3};
  return draw(chart);
}

}  // namespace tessera
