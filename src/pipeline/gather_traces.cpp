#include "pipeline/gather_traces.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"

namespace tessera {
namespace {

/// Tells the time by the first rank's clock.
class CommonClock {
 public:
  explicit CommonClock(const OwnTrace& own) : own_(own) {}

  /// Returns the first rank's time at a moment that the trace counts from its beginning.
  double at(double since_begin) const {
    const double time = own_.begin + since_begin;
    const double between = own_.after.at - own_.before.at;
    const double share = between > 0 ? (time - own_.before.at) / between : 0;
    return time + std::lerp(own_.before.seconds, own_.after.seconds, share);
  }
  double uncertainty() const { return std::max(own_.before.uncertainty, own_.after.uncertainty); }

 private:
  const OwnTrace& own_;
};

/// Returns the lowest of the numbers that the ranks give.
double lowest(double own, const RankControl& control) {
  double result = own;
  for (const uint64_t bits : control.gather(std::array{std::bit_cast<uint64_t>(own)})) {
    result = std::min(result, std::bit_cast<double>(bits));
  }
  return result;
}

/// Moves everything in a rank's trace to the axis of all ranks, which begins at `zero`.
void move_to_axis(RankTrace& trace, const CommonClock& clock, double zero) {
  const auto move = [&](double& start, double& duration) {
    const double end = clock.at(start + duration) - zero;
    start = clock.at(start) - zero;
    duration = end - start;
  };
  move(trace.step.start, trace.step.duration);
  for (TraceEvent& event : trace.step.events) move(event.start, event.duration);
  for (TimedEntry& entry : trace.list) move(entry.start, entry.duration);
  trace.step.clock_uncertainty += clock.uncertainty();
}

/// Returns how many texts of these sizes, and at least one, have no more than `max_bytes` together.
size_t texts_within(std::span<const uint64_t> sizes, int64_t max_bytes) {
  size_t count = 1;
  uint64_t bytes = sizes.front();
  while (count < sizes.size() && bytes + sizes[count] <= static_cast<uint64_t>(max_bytes)) {
    bytes += sizes[count++];
  }
  return count;
}

}  // namespace

std::string GatheredTraces::warning(const std::filesystem::path& file) const {
  if (ranks_written == ranks) return "";
  return fmt::format(
      "{} has {} of {} ranks: all would take {}, and the limit is {}; for more ranks, trace a step "
      "of fewer micro-batches (train.global_batch)",
      file.string(), ranks_written, ranks, format_bytes(bytes), format_bytes(max_bytes));
}

GatheredTraces gather_traces(OwnTrace own, const TracedSchedule& schedule,
                             const RankControl& control, int64_t max_bytes) {
  const CommonClock clock(own);
  const double zero = lowest(clock.at(own.trace.step.start), control);
  move_to_axis(own.trace, clock, zero);
  RankTraceText text = rank_trace_text(own.trace);
  const std::vector<uint64_t> sizes =
      control.gather(std::array{uint64_t{text.events.size() + text.entry.size()}});
  const size_t written = texts_within(sizes, max_bytes);
  if (static_cast<size_t>(control.rank()) >= written) text = {};
  std::vector<std::string> events = control.texts_for_first(text.events);
  std::vector<std::string> entries = control.texts_for_first(text.entry);
  if (!control.is_first()) return {};
  std::vector<RankTraceText> texts;
  for (size_t rank = 0; rank < written; ++rank) {
    texts.push_back({std::move(events[rank]), std::move(entries[rank])});
  }
  const size_t left_out = sizes.size() - written;
  const uint64_t bytes = std::accumulate(sizes.begin(), sizes.end(), uint64_t{0});
  return {.text = run_trace_text(schedule, texts, static_cast<int>(left_out)),
          .ranks = sizes.size(),
          .ranks_written = written,
          .bytes = static_cast<int64_t>(bytes),
          .max_bytes = max_bytes};
}

}  // namespace tessera
