#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "comm/mesh.h"
#include "pipeline/run_trace.h"
#include "pipeline/trace_fields.h"
#include "pipeline/trace_format.h"

// Reads the file of a traced step (trace_format.h), of this version or of those before.

namespace tessera {
namespace {

using Json = nlohmann::json;

constexpr int kMaxDepth = 64;  // deep enough to read another program's trace and say what it is
constexpr uintmax_t kMaxFileBytes = uintmax_t{1} << 30;
constexpr int64_t kMaxTraceCount = int64_t{1} << 40;  // of a count or length; none comes near it
constexpr int64_t kMaxThreads = 1 << 16;
constexpr double kMaxTime = 1e12;        // in microseconds: no step takes a week
constexpr double kClockRounding = 2e-9;  // the seconds by which rounding to text may move a time

/// Reads the fields of one matrix product.
GemmShape product_of(const TraceFields& fields, const Json& json) {
  const auto type = [&](const char* key) {
    const std::string name = fields.text(json, key);
    for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
      if (dtype_name(dtype) == name) return dtype;
    }
    fields.fail("'{}' is {}, expected f32, bf16 or f64", key, in_quotes(name));
  };
  const auto size = [&](const char* key, int64_t min) {
    return fields.integer(json, key, min, kMaxTraceCount);
  };
  GemmShape shape{.m = size("m", 1),
                  .n = size("n", 1),
                  .k = size("k", 1),
                  .input = type("input"),
                  .output = type("output"),
                  .transpose_a = fields.flag(json, "transpose_a"),
                  .transpose_b = fields.flag(json, "transpose_b"),
                  .accumulate = fields.flag(json, "accumulate"),
                  .packed_b = fields.flag(json, "packed_b"),
                  .threads = static_cast<int>(fields.integer(json, "threads", 1, kMaxThreads))};
  shape.lda = size("lda", shape.transpose_a ? shape.m : shape.k);
  shape.ldb = size("ldb", shape.transpose_b ? shape.k : shape.n);
  shape.ldc = size("ldc", shape.n);
  if (shape.output != shape.input && shape.output != accumulation_dtype(shape.input)) {
    fields.fail("there is no product of {} into {}", dtype_name(shape.input),
                dtype_name(shape.output));
  }
  return shape;
}

/// Reads where a rank's step ran, without the number of the rank.
TraceOrigin origin_of(const TraceFields& fields, const Json& json) {
  TraceOrigin origin{.processor = fields.text(json, "processor"),
                     .features = {},
                     .threads = static_cast<int>(fields.integer(json, "threads", 1, kMaxThreads)),
                     .precision = fields.word_of<Precision>(json, "precision"),
                     .gemm_peak = fields.number(json, "gemm_peak"),
                     .tokens = fields.integer(json, "tokens", 0, kMaxTraceCount)};
  for (const Json& feature : fields.list(json, "features")) {
    origin.features.push_back(fields.text_value(feature, "features"));
  }
  // Traces without the key are of the processor, or of versions that did not record the device.
  if (json.contains("device")) origin.device = fields.word_of<Device>(json, "device");
  if (origin.device != Device::cpu) origin.accelerator = fields.text(json, "accelerator");
  return origin;
}

/// Reads one group of ranks.
TraceGroup group_of(const TraceFields& fields, const Json& json) {
  TraceGroup group{.axes = {},
                   .stages = {},
                   .first_rank = fields.index(json, "first_rank"),
                   .ranks = static_cast<int>(fields.integer(json, "ranks", 1, kMostRanks))};
  for (const Json& axis : fields.list(json, "axes")) {
    group.axes.push_back(fields.text_value(axis, "axes"));
  }
  if (group.axes.empty()) fields.fail("'axes' is empty");
  if (!json.contains("stages")) return group;
  for (const Json& stage : fields.list(json, "stages")) {
    group.stages.push_back(fields.index_value(stage, "stages"));
  }
  return group;
}

/// Checks that each flow has one begin and one end.
class Flows {
 public:
  void add(const TraceFields& fields, bool begins, const std::string& id) {
    Ends& ends = flows_[id];
    bool& seen = begins ? ends.begins : ends.ends;
    if (seen) fields.fail("the flow {} {} twice", in_quotes(id), begins ? "begins" : "ends");
    seen = true;
  }
  void require_pairs(const TraceFields& fields) const {
    for (const auto& [id, ends] : flows_) {
      if (ends.begins && ends.ends) continue;
      fields.fail("the flow {} has no {}", in_quotes(id), ends.begins ? "end" : "begin");
    }
  }

 private:
  struct Ends {
    bool begins = false;
    bool ends = false;
  };
  std::map<std::string, Ends> flows_;
};

/// Reads the parts of a trace.
class TraceParser {
 public:
  explicit TraceParser(std::string file) : fields_(std::move(file)) {}

  RunTrace parse(const Json& json) {
    const int version = version_of(json);
    of_one_rank_ = version == kTraceVersionOfOneRank;
    run_.has_groups = version > kTraceVersionWithoutGroups;
    if (version == kTraceVersionOfOneNetwork) tracks_ = kTracksOfOneNetwork;
    const Json& other_data = json["otherData"];
    if (of_one_rank_) {
      add_rank(other_data);
    } else {
      run_.schedule = {.name = fields_.text(other_data, "schedule"),
                       .micro_batches = fields_.index(other_data, "micro_batches")};
      if (other_data.contains(kRanksLeftOutKey)) {
        run_.ranks_left_out = fields_.index(other_data, kRanksLeftOutKey);
      }
      const Json& ranks = fields_.list(other_data, "ranks");
      if (ranks.empty()) fields_.fail("'ranks' is empty");
      for (const Json& rank : ranks) add_rank(rank);
    }
    fields_.enter("traceEvents");
    int64_t number = 0;
    for (const Json& event : fields_.list(json, "traceEvents")) {
      fields_.enter(fmt::format("event {}", ++number));
      add_event(event);
    }
    fields_.enter("traceEvents");
    // The other end of a flow may be on a rank that was left out.
    if (run_.ranks_left_out == 0) flows_.require_pairs(fields_);
    for (const RankTrace& rank : run_.ranks) check_rank(rank);
    return std::move(run_);
  }

 private:
  int version_of(const Json& json) const {
    const auto found = json.is_object() ? json.find("otherData") : json.end();
    if (found == json.end() || !found->is_object() || !found->contains(kTraceVersionKey)) {
      throw Error(
          "{}: found JSON that is no trace of a training step (its otherData has no '{}'); {}",
          fields_.file(), kTraceVersionKey, kTraceAdvice);
    }
    const Json& version = (*found)[kTraceVersionKey];
    if (!version.is_number_integer() || version < kTraceVersionOfOneRank ||
        version > kTraceVersion) {
      throw Error(
          "{}: found a trace of version {}, expected one from {} to {}; read it with the tessera "
          "that wrote it",
          fields_.file(), printable(version.dump(-1, ' ', false, Json::error_handler_t::replace)),
          kTraceVersionOfOneRank, kTraceVersion);
    }
    return version.get<int>();
  }

  void add_rank(const Json& json) {
    RankTrace trace;
    if (!of_one_rank_) {
      fields_.enter(fmt::format("the ranks' entry {}", run_.ranks.size() + 1));
      trace = ranked_trace(json);
    }
    const int rank = trace.rank();
    trace.step.origin = origin_of(fields_, json);
    trace.step.origin.rank = rank;
    for (const Json& product : fields_.list(json, "products")) {
      fields_.enter(fmt::format("product {}{}", trace.step.products.size(),
                                of_one_rank_ ? "" : fmt::format(" of rank {}", rank)));
      trace.step.products.push_back(product_of(fields_, product));
    }
    if (run_.has_groups) {
      fields_.enter(fmt::format("the ranks' entry {}", run_.ranks.size() + 1));
      for (const Json& group : fields_.list(json, "groups")) {
        fields_.enter(fmt::format("group {} of rank {}", trace.step.groups.size(), rank));
        trace.step.groups.push_back(group_of(fields_, group));
      }
    }
    run_.ranks.push_back(std::move(trace));
  }

  /// Returns a trace that has only the rank's number, its stage and coordinates in the mesh, and
  /// the uncertainty of its clock.
  RankTrace ranked_trace(const Json& json) const {
    RankTrace trace;
    trace.step.origin.rank = fields_.index(json, "rank");
    if (!run_.ranks.empty() && trace.rank() <= run_.ranks.back().rank()) {
      fields_.fail("rank {} follows rank {}", trace.rank(), run_.ranks.back().rank());
    }
    trace.step.clock_uncertainty = fields_.number(json, "clock_uncertainty_seconds");
    trace.stage = fields_.index(json, "stage");
    trace.pipeline = fields_.index(json, "pipeline");
    trace.chunks.clear();
    for (const Json& chunk : fields_.list(json, "chunks")) {
      trace.chunks.push_back(fields_.index_value(chunk, "chunks"));
    }
    const Json& coordinates = fields_.field(json, "coordinates");
    if (!coordinates.is_object()) fields_.fail("'coordinates' is not an object");
    for (const auto& [axis, coordinate] : coordinates.items()) {
      trace.coordinates[printable(axis)] = fields_.index_value(coordinate, "coordinates");
    }
    return trace;
  }

  void add_event(const Json& json) {
    const std::string phase = fields_.text(json, "ph");
    if (!of_one_rank_) {
      if (phase == "M") return;  // a name, or the order in which viewers show ranks
      if (phase == "s" || phase == "f") {
        return flows_.add(fields_, phase == "s", fields_.text(json, "id"));
      }
    }
    if (phase != "X") fields_.fail("'ph' is not \"X\", an event with a duration");
    RankTrace& trace = rank_of(json);
    const double start = fields_.number(json, "ts", kMaxTime) / kMicrosecondsPerSecond;
    const double duration = fields_.number(json, "dur", kMaxTime) / kMicrosecondsPerSecond;
    const std::string category = fields_.text(json, "cat");
    const Json& args = fields_.field(json, "args");
    if (category == kStepCategory) return add_step(json, args, start, duration, trace);
    const TraceTrack track = read_track(json, trace);
    if (track == kScheduleTrack) {
      trace.list.push_back({.entry = entry_of(category, args, trace),
                            .start = start,
                            .duration = duration,
                            .bytes = fields_.number_or_zero(args, "bytes")});
      return;
    }
    trace.step.events.push_back({.name = fields_.text(json, "name"),
                                 .block = category,
                                 .phase = fields_.text(args, "phase"),
                                 .layer = args.contains("layer") ? static_cast<int>(fields_.integer(
                                                                       args, "layer", -1, 1 << 20))
                                                                 : -1,
                                 .lane = lane_of(track),
                                 .start = start,
                                 .duration = duration,
                                 .flops = fields_.number_or_zero(args, "flops"),
                                 .backward_flops = fields_.number_or_zero(args, "backward_flops"),
                                 .repeated_flops = fields_.number_or_zero(args, "repeated_flops"),
                                 .bytes = fields_.number_or_zero(args, "bytes"),
                                 .shape = fields_.text_or_empty(args, "shape"),
                                 .products = runs(args, trace.step.products.size()),
                                 .groups = groups(args, trace.step.groups.size()),
                                 .wire_bytes = fields_.number_or_zero(args, "wire_bytes")});
  }

  /// Returns the rank that an event is of.
  RankTrace& rank_of(const Json& json) {
    if (of_one_rank_) return run_.ranks.front();
    const int rank = fields_.index(json, "pid");
    const auto found = std::ranges::lower_bound(run_.ranks, rank, {}, &RankTrace::rank);
    if (found == run_.ranks.end() || found->rank() != rank) {
      fields_.fail("'pid' is {}, which is none of the ranks", rank);
    }
    return *found;
  }

  /// Returns the track of an event. That of all lanes which communicate, which versions before this
  /// one have, is taken for that of exchanges.
  TraceTrack read_track(const Json& json, const RankTrace& trace) const {
    if (of_one_rank_) return 1 + static_cast<TraceTrack>(fields_.integer(json, "tid", 0, 1));
    const int64_t first = track_id(trace.rank(), kScheduleTrack, tracks_);
    return static_cast<TraceTrack>(fields_.integer(json, "tid", first, first + tracks_ - 1) -
                                   first);
  }

  void add_step(const Json& json, const Json& args, double start, double duration,
                RankTrace& trace) const {
    StepTrace& step = trace.step;
    if (step.number > 0) {
      throw Error("{}: found more than one step{}, expected the trace of one", fields_.file(),
                  of_one_rank_ ? "" : fmt::format(" of rank {}", trace.rank()));
    }
    step.number = fields_.integer(args, "step", 1, std::numeric_limits<int64_t>::max());
    step.start = start;
    step.duration = duration;
    if (of_one_rank_) {
      step.origin.rank = fields_.index(json, "pid");
    } else {
      step.recording_seconds = fields_.number(args, "recording_seconds");
    }
  }

  ScheduleEntry entry_of(const std::string& category, const Json& args,
                         const RankTrace& trace) const {
    const int chunk = fields_.index(args, "chunk");
    const int micro_batch = fields_.index(args, "micro_batch");
    if (micro_batch >= run_.schedule.micro_batches) {
      fields_.fail("'micro_batch' is {} of {}", micro_batch, run_.schedule.micro_batches);
    }
    if (category == kMessageCategory) {
      return MessageEntry{.call = fields_.word_of<MessageCall>(args, "call"),
                          .message = {.kind = fields_.word_of<BoundaryKind>(args, "kind"),
                                      .chunk = chunk,
                                      .micro_batch = micro_batch}};
    }
    if (category != kActionCategory) {
      fields_.fail("'cat' is {}, expected {} or {} among a rank's schedule", in_quotes(category),
                   kActionCategory, kMessageCategory);
    }
    if (std::ranges::find(trace.chunks, chunk) == trace.chunks.end()) {
      fields_.fail("'chunk' is {}, which is none of rank {}'s", chunk, trace.rank());
    }
    return ChunkAction{.kind = fields_.word_of<ActionKind>(args, "kind"),
                       .chunk = chunk,
                       .micro_batch = micro_batch};
  }

  std::vector<ProductRuns> runs(const Json& args, size_t products) const {
    std::vector<ProductRuns> result;
    if (!args.contains("products")) return result;
    for (const Json& run : fields_.list(args, "products")) {
      if (!run.is_array() || run.size() != 2) {
        fields_.fail("'products' holds what is no [product, runs]");
      }
      const auto last = static_cast<int64_t>(products) - 1;
      result.push_back({static_cast<int>(fields_.integer_value(run[0], "products", 0, last)),
                        fields_.integer_value(run[1], "products", 1, kMaxTraceCount)});
    }
    return result;
  }

  std::vector<int> groups(const Json& args, size_t groups) const {
    std::vector<int> result;
    if (!args.contains("groups")) return result;
    const auto last = static_cast<int64_t>(groups) - 1;
    for (const Json& group : fields_.list(args, "groups")) {
      result.push_back(static_cast<int>(fields_.integer_value(group, "groups", 0, last)));
    }
    return result;
  }

  /// Throws unless a rank has a step, the same as all ranks, and its events lie in it in order.
  void check_rank(const RankTrace& trace) {
    if (!of_one_rank_) fields_.enter(fmt::format("the events of rank {}", trace.rank()));
    const StepTrace& step = trace.step;
    if (step.number == 0) fields_.fail("there is no event of a whole step");
    if (const int64_t first = run_.ranks.front().step.number; step.number != first) {
      fields_.fail("the step is {}, and that of other ranks is {}", step.number, first);
    }
    if (step.recording_seconds > step.duration + kClockRounding) {
      fields_.fail("'recording_seconds' is more than the step takes");
    }
    std::array<double, kTraceTracks> ends{};
    ends.fill(step.start);
    const auto follow = [&](TraceTrack track, const std::string& name, double start,
                            double duration) {
      double& end = ends.at(static_cast<size_t>(track));
      if (start < end - kClockRounding) {
        fields_.fail("{} at {:.9f} s begins before what comes before it has ended, at {:.9f} s",
                     in_quotes(name), start, end);
      }
      end = start + duration;
    };
    for (size_t i = 0; i < trace.list.size(); ++i) {
      follow(kScheduleTrack, fmt::format("entry {} of the list", i), trace.list[i].start,
             trace.list[i].duration);
    }
    for (const TraceEvent& event : step.events) {
      follow(track_of(event.lane), event.name, event.start, event.duration);
    }
    for (const double end : ends) {
      if (end > step.start + step.duration + kClockRounding) {
        fields_.fail("events end after the step");
      }
    }
  }

  TraceFields fields_;
  bool of_one_rank_ = false;   // whether the file has version 2
  int tracks_ = kTraceTracks;  // of each rank in the file
  RunTrace run_;
  Flows flows_;
};

}  // namespace

const RankTrace& RunTrace::of_rank(int rank) const {
  const auto found = std::ranges::lower_bound(ranks, rank, {}, &RankTrace::rank);
  if (found != ranks.end() && found->rank() == rank) return *found;
  throw Error("the trace has no rank {}, expected one from {} to {}", rank, ranks.front().rank(),
              ranks.back().rank());
}

std::filesystem::path trace_file(const std::filesystem::path& run_or_file) {
  return is_folder(run_or_file) ? run_or_file / "trace.json" : run_or_file;
}

RunTrace read_trace(const std::filesystem::path& path) {
  const std::string file = path.string();
  std::error_code failed;
  if (const uintmax_t size = fs::file_size(path, failed); !failed && size > kMaxFileBytes) {
    throw Error("{}: found a file of {} bytes, expected a trace of at most {}", file, size,
                kMaxFileBytes);
  }
  return TraceParser(file).parse(parse_strict_json(read_file(path), file, kMaxDepth));
}

}  // namespace tessera
