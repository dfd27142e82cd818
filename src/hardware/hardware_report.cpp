#include "hardware/hardware_report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "base/text.h"
#include "plot/chart.h"
#include "plot/heat_map.h"

namespace tessera {
namespace {

// Tables and pictures show the same: the best rates of products by m and n (GemmTables), and the
// best bandwidths of the memory loops by working set.

using PanelKey = std::tuple<DType, GemmLayout, int64_t>;  // type, layout, k

/// The tables of the products that a sweep asked for: the best rate in GFLOP/s for each m and n, by
/// dtype, layout and k. Squares that the sweep did not ask for are left out.
struct GemmTables {
  std::vector<int64_t> m, n;
  std::map<PanelKey, std::map<std::pair<int64_t, int64_t>, double>> panels;

  GemmTables(const std::vector<GemmRate>& rates, const GemmSweep& sweep) {
    std::set<int64_t> rows, columns;
    for (const GemmRate& rate : rates) {
      if (!asks_for(sweep, rate)) continue;
      panels[{rate.dtype, rate.layout, rate.k}][{rate.m, rate.n}] = rate.best * 1e-9;
      rows.insert(rate.m);
      columns.insert(rate.n);
    }
    m.assign(rows.begin(), rows.end());
    n.assign(columns.begin(), columns.end());
  }

  /// Returns the rate of a product, or NaN if it was not measured.
  static double rate_at(const std::map<std::pair<int64_t, int64_t>, double>& cells, int64_t m,
                        int64_t n) {
    const auto found = cells.find({m, n});
    return found == cells.end() ? std::nan("") : found->second;
  }
};

std::string title_of(const PanelKey& key) {
  const auto& [dtype, layout, k] = key;
  const std::string name = layout == GemmLayout::forward ? "" : fmt::format(" {}", word(layout));
  return fmt::format("{}{}, K = {}", dtype_name(dtype), name, k);
}

std::vector<std::string> texts_of(const std::vector<int64_t>& sizes) {
  std::vector<std::string> texts;
  for (const int64_t size : sizes) texts.push_back(std::to_string(size));
  return texts;
}

std::string peaks_text(const Hardware& hardware) {
  std::set<DType> dtypes;
  for (const GemmRate& rate : hardware.gemms) {
    if (is_plain_square(rate)) dtypes.insert(rate.dtype);
  }
  std::string text;
  for (const DType dtype : dtypes) {
    text += fmt::format("{} peak (best square): {:.1f} GFLOP/s\n", dtype_name(dtype),
                        hardware.gemm_peak(dtype) * 1e-9);
  }
  return text;
}

std::string machine_name(const Hardware& hardware) {
  if (hardware.accelerator) return hardware.accelerator->name;
  return fmt::format("{} ({} threads)", hardware.processor.name, hardware.processor.threads);
}

}  // namespace

std::string gemm_text(const Hardware& hardware, const GemmSweep& sweep) {
  const GemmTables tables(hardware.gemms, sweep);
  std::string text;
  for (const auto& [key, cells] : tables.panels) {
    std::vector<std::string> header = texts_of(tables.n);
    header.insert(header.begin(), "M \\ N");
    Table table(header);
    for (const int64_t m : tables.m) {
      std::vector<std::string> row{std::to_string(m)};
      for (const int64_t n : tables.n) {
        const double rate = GemmTables::rate_at(cells, m, n);
        row.push_back(std::isnan(rate) ? "" : fmt::format("{:.1f}", rate));
      }
      table.add(row);
    }
    text += fmt::format("{}, GFLOP/s\n{}\n", title_of(key), table.text());
  }
  return text + peaks_text(hardware);
}

std::string gemm_picture(const Hardware& hardware, const GemmSweep& sweep) {
  const GemmTables tables(hardware.gemms, sweep);
  HeatMap map{.title = fmt::format("Matrix products on {}", machine_name(hardware)),
              .row_label = "M",
              .rows = texts_of(tables.m),
              .column_label = "N",
              .columns = texts_of(tables.n),
              .panels = {},
              .unit = "GFLOP/s",
              .note = "best run of each shape, on random normal numbers"};
  std::set<int64_t> k_values;
  for (const auto& [key, cells] : tables.panels) {
    HeatPanel panel{title_of(key), {}};
    for (const int64_t m : tables.m) {
      std::vector<double>& row = panel.values.emplace_back();
      for (const int64_t n : tables.n) row.push_back(GemmTables::rate_at(cells, m, n));
    }
    map.panels.push_back(std::move(panel));
    k_values.insert(std::get<2>(key));
  }
  map.panels_across = std::min<size_t>(k_values.size(), 4);
  return draw(map);
}

std::string memory_text(const Hardware& hardware) {
  std::map<int64_t, std::map<MemoryKernel, double>> rows;
  for (const MemoryRate& rate : hardware.memory) rows[rate.bytes][rate.kernel] = rate.best;
  std::vector<std::string> header(kWordsOf<MemoryKernel>.begin(), kWordsOf<MemoryKernel>.end());
  header.insert(header.begin(), "working set");
  Table table(header);
  for (const auto& [bytes, rates] : rows) {
    std::vector<std::string> row{format_bytes(bytes)};
    for (size_t kernel = 0; kernel < kWordsOf<MemoryKernel>.size(); ++kernel) {
      const auto found = rates.find(static_cast<MemoryKernel>(kernel));
      row.push_back(found == rates.end() ? "" : fmt::format("{:.1f}", found->second * 1e-9));
    }
    table.add(row);
  }
  return "bandwidth, GB/s read and written\n" + table.text();
}

std::string memory_picture(const Hardware& hardware) {
  Chart chart{
      .title = fmt::format("Memory bandwidth of {}", machine_name(hardware)),
      .runs = {},
      .x = {.label = "bytes of all arrays", .logarithmic = true},
      .panels = {},
      .note =
          "best run of each size; bytes read and written by the loop, of which update alone "
          "overwrites what it has read"};
  Panel panel{"GB/s", {}};
  for (size_t kernel = 0; kernel < kWordsOf<MemoryKernel>.size(); ++kernel) {
    Curve curve{.run = chart.runs.size(), .faint = {}, .line = {}, .markers = {}};
    for (const MemoryRate& rate : hardware.memory) {
      if (rate.kernel != static_cast<MemoryKernel>(kernel)) continue;
      curve.line.push_back({static_cast<double>(rate.bytes), rate.best * 1e-9});
    }
    if (curve.line.empty()) continue;
    std::ranges::sort(curve.line, {}, &Point::x);
    curve.markers = curve.line;
    chart.runs.emplace_back(kWordsOf<MemoryKernel>[kernel]);
    panel.curves.push_back(std::move(curve));
  }
  chart.panels.push_back(std::move(panel));
  // The margin gives a single size a range too.
  const auto [least, most] = std::ranges::minmax(hardware.memory, {}, &MemoryRate::bytes);
  chart.x.range = {static_cast<double>(least.bytes) / 1.3, static_cast<double>(most.bytes) * 1.3};
  return draw(chart);
}

}  // namespace tessera
