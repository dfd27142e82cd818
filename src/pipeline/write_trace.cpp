#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "base/words.h"
#include "engine/gemm_json.h"
#include "pipeline/action_colour.h"
#include "pipeline/run_trace.h"
#include "pipeline/trace_format.h"

// Writes the file of a traced step. Each rank writes its own text, and the first one joins them.
// Times are rounded to nanoseconds: viewers do so too, and a rounded event must neither overlap
// with its neighbour nor lose the flow that is within it.

namespace tessera {
namespace {

using OrderedJson = nlohmann::ordered_json;

/// When an event begins and how long it takes, in nanoseconds.
struct RoundedTime {
  int64_t start = 0;
  int64_t duration = 0;
};

RoundedTime rounded(double start, double duration) {
  constexpr double kNanosecondsPerSecond = 1e9;
  const int64_t begin = std::llround(start * kNanosecondsPerSecond);
  return {begin, std::llround((start + duration) * kNanosecondsPerSecond) - begin};
}

std::string microseconds(int64_t nanoseconds) {
  return fmt::format("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000);
}

std::string json_text(std::string_view text) { return OrderedJson(text).dump(); }

/// Adds the events of one rank to a text, each in a line.
class EventWriter {
 public:
  explicit EventWriter(const RankTrace& trace) : trace_(trace) {}

  std::string write() {
    name_process();
    const StepTrace& step = trace_.step;
    name_track(kScheduleTrack, "schedule");
    for (size_t i = 0; i < kLanes; ++i) {
      const auto lane = static_cast<Lane>(i);
      const bool is_used =
          std::ranges::find(step.events, lane, &TraceEvent::lane) != step.events.end();
      if (is_used || lane == Lane::compute) name_track(track_of(lane), word(lane));
    }
    add(fmt::format("step {}", step.number), kStepCategory, rounded(step.start, step.duration),
        kScheduleTrack, {{"step", step.number}, {"recording_seconds", step.recording_seconds}});
    for (const TimedEntry& entry : trace_.list) {
      std::visit([&](const auto& known) { add_entry(known, entry); }, entry.entry);
    }
    for (const TraceEvent& event : step.events) add_operation(event);
    return std::move(text_);
  }

 private:
  void add_line(std::string_view line) {
    if (!text_.empty()) text_ += ",\n";
    text_ += line;
  }

  void add(std::string_view name, std::string_view category, const RoundedTime& time,
           TraceTrack track, const OrderedJson& args, std::string_view colour = {}) {
    const std::string colour_field = colour.empty() ? "" : fmt::format(R"("cname":"{}",)", colour);
    add_line(fmt::format(
        R"({{"name":{},"cat":{},"ph":"X","ts":{},"dur":{},"pid":{},"tid":{},{}"args":{}}})",
        json_text(name), json_text(category), microseconds(time.start), microseconds(time.duration),
        trace_.rank(), track_id(trace_.rank(), track), colour_field, args.dump()));
  }

  void add_metadata(std::string_view kind, TraceTrack track, const OrderedJson& args) {
    add_line(fmt::format(R"({{"name":"{}","ph":"M","pid":{},"tid":{},"args":{}}})", kind,
                         trace_.rank(), track_id(trace_.rank(), track), args.dump()));
  }

  void name_process() {
    add_metadata("process_name", kScheduleTrack, {{"name", trace_.title()}});
    add_metadata("process_sort_index", kScheduleTrack, {{"sort_index", trace_.rank()}});
  }

  void name_track(TraceTrack track, std::string_view name) {
    add_metadata("thread_name", track, {{"name", name}});
    add_metadata("thread_sort_index", track, {{"sort_index", track}});
  }

  /// Perfetto gives slices a colour by their names without numbers. So the name has the kind, and
  /// the chunk as a letter: the first one of the stage is "a". A single chunk has no letter.
  void add_entry(const ChunkAction& action, const TimedEntry& entry) {
    std::string name(word(action.kind));
    if (trace_.chunks.size() > 1) {
      const auto index = std::ranges::find(trace_.chunks, action.chunk) - trace_.chunks.begin();
      name += " " + letters(index);
    }
    add(fmt::format("{} {}", name, action.micro_batch), kActionCategory,
        rounded(entry.start, entry.duration), kScheduleTrack,
        {{"kind", word(action.kind)}, {"chunk", action.chunk}, {"micro_batch", action.micro_batch}},
        named_action_colour(action.kind, shade_of(action.chunk, trace_.chunks)));
  }

  void add_entry(const MessageEntry& entry, const TimedEntry& timed) {
    const auto& [kind, chunk, micro_batch] = entry.message;
    RoundedTime time = rounded(timed.start, timed.duration);
    time.duration = std::max(time.duration, int64_t{1});  // a flow needs a slice to be in
    const std::string flow = fmt::format("{} {}", word(kind), micro_batch);
    OrderedJson args{{"call", word(entry.call)},
                     {"kind", word(kind)},
                     {"chunk", chunk},
                     {"micro_batch", micro_batch}};
    if (timed.bytes > 0) args["bytes"] = timed.bytes;
    add(fmt::format("{} {}", word(entry.call), flow), kMessageCategory, time, kScheduleTrack, args,
        kNamedIdleColour);
    // Viewers drop a flow that ends before it begins. A message may be posted while its receiver
    // already waits for it, so the flow ends shortly before the wait does.
    constexpr int64_t kBeforeTheEnd = 100;
    if (entry.call == MessageCall::post_send) add_flow("s", time.start, entry.message);
    if (entry.call == MessageCall::wait_receive) {
      add_flow("f", time.start + time.duration - std::min(time.duration, kBeforeTheEnd),
               entry.message);
    }
  }

  void add_flow(std::string_view phase, int64_t time, const BoundaryMessage& message) {
    const std::string_view binding = phase == "f" ? R"("bp":"e",)" : "";
    add_line(fmt::format(
        R"({{"name":"{}","cat":"{}","ph":"{}","id":"{}",{}"ts":{},"pid":{},"tid":{}}})",
        word(message.kind), kMessageCategory, phase, flow_id(trace_.pipeline, message), binding,
        microseconds(time), trace_.rank(), track_id(trace_.rank(), kScheduleTrack)));
  }

  void add_operation(const TraceEvent& event) {
    OrderedJson args{{"phase", event.phase}};
    if (event.layer >= 0) args["layer"] = event.layer;
    if (event.flops > 0) args["flops"] = event.flops;
    if (event.backward_flops > 0) args["backward_flops"] = event.backward_flops;
    if (event.repeated_flops > 0) args["repeated_flops"] = event.repeated_flops;
    if (event.bytes > 0) args["bytes"] = event.bytes;
    if (!event.shape.empty()) args["shape"] = event.shape;
    for (const auto& [product, count] : event.products) {
      args["products"].push_back(OrderedJson::array({product, count}));
    }
    if (!event.groups.empty()) args["groups"] = event.groups;
    if (event.wire_bytes > 0) args["wire_bytes"] = event.wire_bytes;
    add(event.name, event.block, rounded(event.start, event.duration), track_of(event.lane), args);
  }

  /// Returns the letters of an index: a to z, then aa, ab and so on.
  static std::string letters(int64_t index) {
    constexpr int64_t kLetters = 26;
    const std::string last(1, static_cast<char>('a' + index % kLetters));
    return index < kLetters ? last : letters(index / kLetters - 1) + last;
  }

  const RankTrace& trace_;
  std::string text_;
};

OrderedJson rank_entry(const RankTrace& trace) {
  const TraceOrigin& origin = trace.step.origin;
  OrderedJson products = OrderedJson::array();
  for (const GemmShape& product : trace.step.products) products.push_back(product_json(product));
  OrderedJson entry{{"rank", origin.rank},
                    {"stage", trace.stage},
                    {"chunks", trace.chunks},
                    {"pipeline", trace.pipeline},
                    {"coordinates", OrderedJson(trace.coordinates)},
                    {"clock_uncertainty_seconds", trace.step.clock_uncertainty},
                    {"processor", origin.processor},
                    {"features", origin.features},
                    {"threads", origin.threads},
                    {"precision", word(origin.precision)},
                    {"gemm_peak", origin.gemm_peak},
                    {"tokens", origin.tokens}};
  if (origin.device != Device::cpu) {
    entry["device"] = word(origin.device);
    entry["accelerator"] = origin.accelerator;
  }
  entry["products"] = products;
  entry["groups"] = OrderedJson::array();
  for (const TraceGroup& group : trace.step.groups) {
    OrderedJson json{
        {"axes", group.axes}, {"first_rank", group.first_rank}, {"ranks", group.ranks}};
    if (!group.stages.empty()) json["stages"] = group.stages;
    entry["groups"].push_back(json);
  }
  return entry;
}

}  // namespace

std::string flow_id(int pipeline, const BoundaryMessage& message) {
  constexpr int kRankBits = 20, kChunkBits = 20, kMicroBatchBits = 23;
  const auto bits = [](int number, int count) {
    TESSERA_CHECK(number >= 0 && number < 1 << count, "{} in {} bits of a flow", number, count);
    return static_cast<uint64_t>(number);
  };
  uint64_t id = bits(pipeline, kRankBits);
  id = id << kChunkBits | bits(message.chunk, kChunkBits);
  id = id << kMicroBatchBits | bits(message.micro_batch, kMicroBatchBits);
  id = id << 1 | static_cast<uint64_t>(message.kind);
  return fmt::format("0x{:x}", id);
}

std::string RankTrace::title() const {
  std::vector<std::string> parts{fmt::format("stage {}", stage)};
  for (const auto& [axis, index] : coordinates) parts.push_back(fmt::format("{} {}", axis, index));
  return fmt::format("rank {}: {}", rank(), join(parts, ", "));
}

RankTraceText rank_trace_text(const RankTrace& trace) {
  return {.events = EventWriter(trace).write(), .entry = rank_entry(trace).dump()};
}

std::string run_trace_text(const TracedSchedule& schedule, std::span<const RankTraceText> ranks,
                           int ranks_left_out) {
  std::string text = "{\"traceEvents\":[";
  const auto append = [&](std::string RankTraceText::*part) {
    std::string_view separator = "\n";
    for (const RankTraceText& rank : ranks) {
      text += separator;
      text += rank.*part;
      separator = ",\n";
    }
  };
  append(&RankTraceText::events);
  text += fmt::format(
      "\n],\n\"displayTimeUnit\":\"ms\",\n"
      "\"otherData\":{{\"{}\":{},\"schedule\":{},\"micro_batches\":{},",
      kTraceVersionKey, kTraceVersion, json_text(schedule.name), schedule.micro_batches);
  if (ranks_left_out > 0) text += fmt::format("\"{}\":{},", kRanksLeftOutKey, ranks_left_out);
  text += "\"ranks\":[";
  append(&RankTraceText::entry);
  return text + "\n]}}\n";
}

void write_trace(const std::filesystem::path& path, const RunTrace& trace) {
  std::vector<RankTraceText> texts;
  for (const RankTrace& rank : trace.ranks) texts.push_back(rank_trace_text(rank));
  write_file(path, run_trace_text(trace.schedule, texts, trace.ranks_left_out));
}

}  // namespace tessera
