#include "hardware/collective_rate.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/progress.h"
#include "base/quantile.h"
#include "base/round_up.h"
#include "base/text.h"
#include "plot/chart.h"

namespace tessera {
namespace {

// A measurement times batches of calls. A batch has as many calls as take about a millisecond,
// which a clock resolves well. All ranks compute the same numbers of calls and batches, because
// they use the times of the slowest rank. The tables and the picture follow the measurement.
constexpr double kLeastBatchSeconds = 1e-3;
constexpr int64_t kLeastBatches = 3, kMostBatches = 1'000'000;

/// A collective of one size, with its operands.
class MeasuredCall {
 public:
  MeasuredCall(Communicator& group, Collective collective, DType dtype, int64_t bytes)
      : group_(group),
        collective_(collective),
        rank_elements_(std::max<int64_t>(1, ceil_div(bytes, group.size() * dtype_size(dtype)))),
        layout_(even_pieces(group.size() * rank_elements_, group.size())) {
    const int64_t elements = group.size() * rank_elements_;
    from_ = Tensor({collective == Collective::all_gather ? rank_elements_ : elements}, dtype);
    to_ = Tensor({collective == Collective::reduce_scatter ? rank_elements_ : elements}, dtype);
  }

  int64_t bytes() const { return std::max(from_.bytes(), to_.bytes()); }

  void operator()() {
    switch (collective_) {
      case Collective::all_gather:
        return group_.all_gather("bench", layout_, from_, to_);
      case Collective::reduce_scatter:
        return group_.reduce_scatter("bench", layout_, from_, to_);
      case Collective::all_reduce:
        return group_.all_reduce("bench", from_, to_);
      case Collective::all_to_all:
        return group_.all_to_all("bench", from_, to_);
      case Collective::broadcast:
        return group_.broadcast("bench", 0, to_);
      case Collective::message: {
        const int ranks = group_.size();
        const Message send{(group_.position() + 1) % ranks, from_};
        const Message receive{(group_.position() + ranks - 1) % ranks, to_};
        return group_.exchange("bench", std::span(&send, 1), std::span(&receive, 1));
      }
      default:
        throw InternalError("a collective that is not measured");
    }
  }

 private:
  Communicator& group_;
  Collective collective_;
  int64_t rank_elements_;  // of one rank's piece
  PieceLayout layout_;
  Tensor from_, to_;
};

/// Returns the largest of the ranks' numbers.
double largest_of_ranks(Communicator& everyone, double rank_number) {
  const Tensor number({1}, DType::f64);
  number.data<double>()[0] = rank_number;
  everyone.all_reduce("largest", number, number, Reduction::maximum);
  return number.data<double>()[0];
}

/// Returns the seconds per call of the slowest rank, measured over `calls` calls. An interrupted
/// rank reports an infinite time, so that all ranks throw the Error together.
double time_calls(Communicator& everyone, int64_t calls, MeasuredCall& call) {
  constexpr double kInterrupted = std::numeric_limits<double>::infinity();
  everyone.barrier("begin");
  const Stopwatch watch;
  for (int64_t i = 0; i < calls; ++i) call();
  const double slowest =
      largest_of_ranks(everyone, InterruptGuard::requested() ? kInterrupted : watch.seconds());
  if (slowest == kInterrupted) throw Error("interrupted");
  return slowest / static_cast<double>(calls);
}

CollectiveRate measure(Communicator& group, Communicator& everyone, const CollectiveRanks& ranks,
                       Collective collective, int64_t bytes, const CollectiveSweep& sweep) {
  MeasuredCall call(group, collective, sweep.dtype, bytes);
  call();  // The first call takes longer: it prepares what later calls use again.
  const double call_seconds = std::max(time_calls(everyone, 1, call), 1e-9);  // above 0: a divisor
  const double least_seconds = std::max(kLeastBatchSeconds, sweep.seconds / kMostBatches);
  const auto calls = std::max<int64_t>(1, static_cast<int64_t>(least_seconds / call_seconds));
  const double batch_seconds = call_seconds * static_cast<double>(calls);
  const auto batches =
      std::clamp(static_cast<int64_t>(sweep.seconds / batch_seconds), kLeastBatches, kMostBatches);
  std::vector<double> samples;
  for (int64_t i = 0; i < batches; ++i) samples.push_back(time_calls(everyone, calls, call));
  return {collective,
          sweep.dtype,
          ranks,
          call.bytes(),
          *std::ranges::min_element(samples),
          quantile(samples, 0.5)};
}

/// Returns the heading of a table: its ranks and its dtype.
std::string heading(const CollectiveRate& rate) {
  return fmt::format("{}, {}", rate.ranks.text(), dtype_name(rate.dtype));
}

/// Returns the rates grouped by heading, in the order of the first rate of each.
std::vector<std::pair<std::string, std::vector<CollectiveRate>>> grouped_by_heading(
    const std::vector<CollectiveRate>& rates) {
  std::vector<std::pair<std::string, std::vector<CollectiveRate>>> groups;
  for (const CollectiveRate& rate : rates) {
    const auto found =
        std::ranges::find(groups, heading(rate), [](const auto& entry) { return entry.first; });
    if (found != groups.end()) {
      found->second.push_back(rate);
    } else {
      groups.push_back({heading(rate), {rate}});
    }
  }
  return groups;
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

std::string CollectiveRanks::text() const {
  if (kind == RankKind::threads) return fmt::format("{} threads of a process", count);
  return fmt::format("{} processes of {} machine{}", count, machines, machines == 1 ? "" : "s");
}

double sent_share(Collective collective, int ranks) {
  const auto share_of_others = static_cast<double>(ranks - 1) / ranks;
  switch (collective) {
    case Collective::all_reduce:
      return 2 * share_of_others;
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::all_to_all:
      return share_of_others;
    default:
      return 1;
  }
}

double CollectiveRate::bus_bandwidth() const {
  return sent_share(collective, ranks.count) * static_cast<double>(bytes) / best_seconds;
}

std::vector<CollectiveRate> measure_collectives(Communicator& group, Communicator& everyone,
                                                const CollectiveRanks& ranks,
                                                const CollectiveSweep& sweep) {
  std::vector<CollectiveRate> rates;
  for (const Collective collective : sweep.collectives) {
    for (const int64_t bytes : sweep.bytes) {
      rates.push_back(measure(group, everyone, ranks, collective, bytes, sweep));
    }
  }
  return rates;
}

std::string collectives_text(const std::vector<CollectiveRate>& rates) {
  std::string text;
  for (const auto& [title, group_rates] : grouped_by_heading(rates)) {
    text += fmt::format("{}: bus bandwidth, GB/s\n{}\n", title,
                        table_text(group_rates, [](const CollectiveRate& rate) {
                          return fmt::format("{:.3f}", rate.bus_bandwidth() * 1e-9);
                        }));
    text += fmt::format("{}: microseconds of a call\n{}\n", title,
                        table_text(group_rates, [](const CollectiveRate& rate) {
                          return fmt::format("{:.1f}", rate.best_seconds * 1e6);
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
  const bool one_heading = grouped_by_heading(rates).size() == 1;
  std::map<std::string, size_t> curve_indices;  // the same in both panels
  for (const CollectiveRate& rate : rates) {
    const std::string name = one_heading
                                 ? std::string(word(rate.collective))
                                 : fmt::format("{}, {}", word(rate.collective), heading(rate));
    const auto [entry, is_new] = curve_indices.emplace(name, curve_indices.size());
    if (is_new) {
      chart.runs.push_back(name);
      for (Panel& panel : chart.panels) panel.curves.push_back({.run = entry->second});
    }
    const auto add_point = [&, index = entry->second](Panel& panel, double y) {
      Curve& curve = panel.curves[index];
      curve.line.push_back({static_cast<double>(rate.bytes), y});
      curve.markers = curve.line;
    };
    add_point(chart.panels[0], rate.bus_bandwidth() * 1e-9);
    add_point(chart.panels[1], rate.best_seconds * 1e6);
  }
  if (one_heading) chart.title = "Collectives of " + heading(rates.front());
  for (Panel& panel : chart.panels) {
    for (Curve& curve : panel.curves) std::ranges::sort(curve.line, {}, &Point::x);
  }
  // The margin gives a single size a range too.
  const auto [least, most] = std::ranges::minmax(rates, {}, &CollectiveRate::bytes);
  chart.x.range = {static_cast<double>(least.bytes) / 1.3, static_cast<double>(most.bytes) * 1.3};
  return draw(chart);
}

}  // namespace tessera
