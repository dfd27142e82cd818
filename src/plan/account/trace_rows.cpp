#include "plan/account/trace_rows.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <utility>

namespace tessera {
namespace {

using std::chrono::nanoseconds;

constexpr std::array<std::string_view, 4> kRowNames{"compute", "exchanges", "reductions",
                                                    "messages"};

size_t row_of(Lane lane) {
  switch (lane) {
    case Lane::compute:
      return 0;
    case Lane::exchanges:
      return 1;
    case Lane::reductions:
      return 2;
    case Lane::messages_forward:
    case Lane::messages_backward:
      return 3;
  }
  return 0;
}

TraceBox box_of(const TraceEvent& event) {
  const bool computes = event.lane == Lane::compute;
  return {.start = nanoseconds_of(event.start),
          .end = nanoseconds_of(event.start + event.duration),
          .activity = computes ? BoxActivity::computing : BoxActivity::on_its_own,
          .name = computes ? event.phase : "",
          .block = event.block,
          .layer = event.layer};
}

void add_call(std::vector<TraceBox>& boxes, const NetworkCall& call) {
  TraceBox box{.start = call.start,
               .end = call.end,
               .activity = BoxActivity::calling,
               .name = call.axes,
               .block = {},
               .layer = -1,
               .bytes = call.bytes};
  if (call.arrival) {
    if (call.arrival->at > call.start) {
      TraceBox& waits = boxes.emplace_back(box);
      waits.end = call.arrival->at;
      waits.activity = BoxActivity::waiting;
      waits.bytes = 0;
    }
    box.start = call.arrival->at;
    box.activity = BoxActivity::transferring;
    if (box.start == box.end && box.start > call.start) return;
  }
  boxes.push_back(std::move(box));
}

bool are_of_one_layer(const TraceBox& a, const TraceBox& b) {
  return a.activity == BoxActivity::computing && b.activity == BoxActivity::computing &&
         a.name == b.name && a.block == b.block && a.layer == b.layer;
}

/// Returns one box in the place of several: of the kind that takes most of the time, with the bytes
/// of this kind.
TraceBox box_over(std::span<const TraceBox> boxes) {
  if (boxes.size() == 1) return boxes.front();
  std::map<std::pair<BoxActivity, std::string>, TraceBox> kinds;
  std::map<std::pair<BoxActivity, std::string>, nanoseconds> times;
  nanoseconds end{};
  for (const TraceBox& box : boxes) {
    const std::pair kind(box.activity, box.name);
    TraceBox& sum = kinds[kind];
    sum.activity = box.activity;
    sum.name = box.name;
    sum.bytes += box.bytes;
    times[kind] += box.duration();
    end = std::max(end, box.end);
  }
  TraceBox result = kinds.at(
      std::ranges::max_element(times, {}, [](const auto& kind) { return kind.second; })->first);
  result.start = boxes.front().start;
  result.end = end;
  return result;
}

std::vector<TraceBox> joined(const std::vector<TraceBox>& boxes, nanoseconds narrow) {
  std::vector<TraceBox> result;
  for (const TraceBox& box : boxes) {
    if (!result.empty() && are_of_one_layer(result.back(), box) &&
        box.start - result.back().end < narrow) {
      result.back().end = box.end;
    } else {
      result.push_back(box);
    }
  }
  return result;
}

}  // namespace

std::vector<TraceRow> trace_rows(const RankTrace& trace, const std::vector<NetworkCall>& calls) {
  std::array<std::vector<TraceBox>, kRowNames.size()> boxes;
  for (const TraceEvent& event : trace.step.events) {
    const bool is_call = event.lane != Lane::compute && !event.groups.empty();
    if (!is_call) boxes.at(row_of(event.lane)).push_back(box_of(event));
  }
  for (const NetworkCall& call : calls) add_call(boxes.at(row_of(call.lane)), call);
  std::vector<TraceRow> rows;
  for (size_t i = 0; i < boxes.size(); ++i) {
    std::ranges::stable_sort(boxes.at(i), {}, &TraceBox::start);
    if (i > 0 && boxes.at(i).empty()) continue;
    rows.push_back({.name = std::string(kRowNames.at(i)), .boxes = std::move(boxes.at(i))});
  }
  return rows;
}

std::vector<TraceBox> merged(const std::vector<TraceBox>& boxes, nanoseconds narrow) {
  std::vector<TraceBox> result;
  std::vector<TraceBox> cluster;  // narrow boxes that become one
  const auto end_cluster = [&] {
    if (!cluster.empty()) result.push_back(box_over(cluster));
    cluster.clear();
  };
  for (const TraceBox& box : joined(boxes, narrow)) {
    const bool is_narrow = box.duration() < narrow;
    if (!cluster.empty() && (!is_narrow || box.start - cluster.back().end >= narrow ||
                             cluster.back().end - cluster.front().start >= narrow)) {
      end_cluster();
    }
    if (is_narrow) {
      cluster.push_back(box);
    } else {
      result.push_back(box);
    }
  }
  end_cluster();
  return result;
}

}  // namespace tessera
