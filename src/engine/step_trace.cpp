// Writes and reads the file of a trace, which is JSON in the trace event format:
//
//   {"traceEvents": [the event of the whole step, then one for each TraceEvent],
//    "displayTimeUnit": "ms",
//    "otherData": {"tessera_trace": version, the TraceOrigin, "products": [each GemmShape once]}}
//
// In an event "pid" is the rank, "tid" the lane and "cat" the block of the model. "args" has the
// phase, the layer, the cost and the matrix products as pairs of [index of the product, runs].
//
// The reader trusts nothing: each field's type and range is checked, and errors quote no control
// characters of the file.

#include "engine/step_trace.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/strict_json.h"
#include "base/text.h"
#include "engine/gemm_json.h"

namespace tessera {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr double kMicrosecondsPerSecond = 1e6;  // the format's times are in microseconds
constexpr const char* kVersionKey = "tessera_trace";
constexpr int kVersion = 2;
constexpr const char* kStepBlock = "step";  // the block of the event that spans all others

/// Returns an event in which ranks are processes and lanes are threads.
OrderedJson span(std::string_view name, std::string_view category, double start, double duration,
                 int rank, Lane lane) {
  return {{"name", name},
          {"cat", category},
          {"ph", "X"},
          {"ts", start * kMicrosecondsPerSecond},
          {"dur", duration * kMicrosecondsPerSecond},
          {"pid", rank},
          {"tid", static_cast<int>(lane)}};
}

OrderedJson event_json(const TraceEvent& event, int rank) {
  OrderedJson runs = OrderedJson::array();
  for (const auto& [product, count] : event.products) runs.push_back({product, count});
  OrderedJson result = span(event.name, event.block, event.start, event.duration, rank, event.lane);
  result["args"] = {{"phase", event.phase},
                    {"layer", event.layer},
                    {"flops", event.flops},
                    {"backward_flops", event.backward_flops},
                    {"repeated_flops", event.repeated_flops},
                    {"bytes", event.bytes},
                    {"shape", event.shape},
                    {"products", runs}};
  return result;
}

constexpr int kMaxDepth = 64;  // deep enough to read another program's trace and say what it is
constexpr uintmax_t kMaxFileBytes = uintmax_t{256} << 20;
constexpr int64_t kMaxTraceCount = int64_t{1} << 40;  // of a count or length; none comes near it
constexpr double kMaxTraceNumber = 1e30;              // small enough that no sum overflows
constexpr double kClockRounding = 1e-9;  // the seconds by which rounding to text may move a time

/// Reads the parts of a trace. Every error names the file, the entry and what was expected.
class TraceParser {
 public:
  explicit TraceParser(std::string file) : file_(std::move(file)) {}

  StepTrace parse(const Json& json) {
    check_kind(json);
    StepTrace step;
    const Json& other_data = json["otherData"];
    step.origin = {.processor = text(other_data, "processor"),
                   .features = features(other_data),
                   .threads = static_cast<int>(integer(other_data, "threads", 1, 1 << 16)),
                   .precision = precision(other_data),
                   .gemm_peak = number(other_data, "gemm_peak"),
                   .tokens = integer(other_data, "tokens", 0, kMaxTraceCount),
                   .device = device(other_data)};
    if (step.origin.device != Device::cpu)
      step.origin.accelerator = text(other_data, "accelerator");
    for (const Json& product : list(other_data, "products")) {
      where_ = fmt::format("product {}", step.products.size());
      step.products.push_back(shape(product));
    }
    where_ = "traceEvents";
    for (const Json& event : list(json, "traceEvents")) {
      where_ = fmt::format("event {}", ++event_number_);
      add_event(event, step);
    }
    where_ = "traceEvents";
    if (step.number == 0) fail("there is no event of a whole step");
    check_order(step);
    return step;
  }

 private:
  template <typename... Arguments>
  [[noreturn]] void fail(fmt::format_string<Arguments...> format, Arguments&&... arguments) const {
    throw Error("{} is damaged: in {}, {}; train with run.trace_step writes a new one", file_,
                where_, fmt::format(format, std::forward<Arguments>(arguments)...));
  }

  void check_kind(const Json& json) const {
    const auto found = json.is_object() ? json.find("otherData") : json.end();
    if (found == json.end() || !found->is_object() || !found->contains(kVersionKey)) {
      throw Error(
          "{}: found JSON that is no trace of a training step (its otherData has no '{}'); "
          "expected the trace.json that train writes with run.trace_step",
          file_, kVersionKey);
    }
    const Json& version = (*found)[kVersionKey];
    if (version != kVersion) {
      throw Error(
          "{}: found a trace of version {}, expected {}; read it with the tessera that "
          "wrote it",
          file_, printable(version.dump(-1, ' ', false, Json::error_handler_t::replace)), kVersion);
    }
  }

  const Json& field(const Json& json, const char* key) const {
    if (!json.is_object()) fail("found an entry that is not an object");
    const auto found = json.find(key);
    if (found == json.end()) fail("'{}' is missing", key);
    return *found;
  }

  std::string text(const Json& json, const char* key) const {
    const Json& value = field(json, key);
    if (!value.is_string()) fail("'{}' is not a text", key);
    return printable(value.get_ref<const std::string&>());
  }

  const Json& list(const Json& json, const char* key) const {
    const Json& value = field(json, key);
    if (!value.is_array()) fail("'{}' is not a list", key);
    return value;
  }

  bool flag(const Json& json, const char* key) const {
    const Json& value = field(json, key);
    if (!value.is_boolean()) fail("'{}' is neither true nor false", key);
    return value.get<bool>();
  }

  double number(const Json& json, const char* key) const {
    const Json& value = field(json, key);
    const double result = value.is_number() ? value.get<double>() : -1;
    if (!(result >= 0 && result <= kMaxTraceNumber)) {
      fail("'{}' is not a number from 0 to {}", key, kMaxTraceNumber);
    }
    return result;
  }

  int64_t integer_value(const Json& value, const char* key, int64_t min, int64_t max) const {
    const bool fits = value.is_number_integer() && value >= min && value <= max;
    if (!fits) fail("'{}' is not a whole number from {} to {}", key, min, max);
    return value.get<int64_t>();
  }
  int64_t integer(const Json& json, const char* key, int64_t min, int64_t max) const {
    return integer_value(field(json, key), key, min, max);
  }

  DType type(const Json& json, const char* key) const {
    const std::string name = text(json, key);
    for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
      if (dtype_name(dtype) == name) return dtype;
    }
    fail("'{}' is {}, expected f32, bf16 or f64", key, in_quotes(name));
  }

  std::vector<std::string> features(const Json& json) const {
    std::vector<std::string> result;
    for (const Json& feature : list(json, "features")) {
      if (!feature.is_string()) fail("'features' holds what is no text");
      result.push_back(printable(feature.get_ref<const std::string&>()));
    }
    return result;
  }

  Precision precision(const Json& json) const {
    const std::string name = text(json, "precision");
    if (const auto known = value_of_word<Precision>(name)) return *known;
    fail("'precision' is {}, expected bf16, fp32 or fp64", in_quotes(name));
  }

  /// Traces without the key are of the processor, or of versions that did not record the device.
  Device device(const Json& json) const {
    if (!json.contains("device")) return Device::cpu;
    const std::string name = text(json, "device");
    if (const auto known = value_of_word<Device>(name)) return *known;
    fail("'device' is {}, expected one of {}", in_quotes(name), join(words_of<Device>(), ", "));
  }

  GemmShape shape(const Json& json) const {
    GemmShape shape{.m = integer(json, "m", 1, kMaxTraceCount),
                    .n = integer(json, "n", 1, kMaxTraceCount),
                    .k = integer(json, "k", 1, kMaxTraceCount),
                    .input = type(json, "input"),
                    .output = type(json, "output"),
                    .transpose_a = flag(json, "transpose_a"),
                    .transpose_b = flag(json, "transpose_b"),
                    .accumulate = flag(json, "accumulate"),
                    .packed_b = flag(json, "packed_b"),
                    .threads = static_cast<int>(integer(json, "threads", 1, 1 << 16))};
    shape.lda = integer(json, "lda", shape.transpose_a ? shape.m : shape.k, kMaxTraceCount);
    shape.ldb = integer(json, "ldb", shape.transpose_b ? shape.k : shape.n, kMaxTraceCount);
    shape.ldc = integer(json, "ldc", shape.n, kMaxTraceCount);
    if (shape.output != shape.input && shape.output != accumulation_dtype(shape.input)) {
      fail("there is no product of {} into {}", dtype_name(shape.input), dtype_name(shape.output));
    }
    return shape;
  }

  void add_event(const Json& json, StepTrace& step) const {
    if (text(json, "ph") != "X") fail("'ph' is not \"X\", an event with a duration");
    const double start = number(json, "ts") / kMicrosecondsPerSecond;
    const double duration = number(json, "dur") / kMicrosecondsPerSecond;
    const std::string block = text(json, "cat");
    const Json& args = field(json, "args");
    if (block == kStepBlock) {
      if (step.number > 0) {
        throw Error("{}: found more than one step, expected the trace of one", file_);
      }
      step.number = integer(args, "step", 1, std::numeric_limits<int64_t>::max());
      step.start = start;
      step.duration = duration;
      step.origin.rank = static_cast<int>(integer(json, "pid", 0, 1 << 24));
      return;
    }
    step.events.push_back({.name = text(json, "name"),
                           .block = block,
                           .phase = text(args, "phase"),
                           .layer = static_cast<int>(integer(args, "layer", -1, 1 << 20)),
                           .lane = static_cast<Lane>(integer(json, "tid", 0, 1)),
                           .start = start,
                           .duration = duration,
                           .flops = number(args, "flops"),
                           .backward_flops = number(args, "backward_flops"),
                           .repeated_flops = number(args, "repeated_flops"),
                           .bytes = number(args, "bytes"),
                           .shape = text(args, "shape"),
                           .products = runs(args, step.products.size())});
  }

  std::vector<ProductRuns> runs(const Json& args, size_t products) const {
    std::vector<ProductRuns> result;
    for (const Json& run : list(args, "products")) {
      if (!run.is_array() || run.size() != 2) fail("'products' holds what is no [product, runs]");
      const auto last = static_cast<int64_t>(products) - 1;
      result.push_back({static_cast<int>(integer_value(run[0], "products", 0, last)),
                        integer_value(run[1], "products", 1, kMaxTraceCount)});
    }
    return result;
  }

  /// Throws if events are outside the step or overlap on their lane: their shares would not add up.
  void check_order(const StepTrace& step) const {
    std::array<double, kWordsOf<Lane>.size()> ends{};
    ends.fill(step.start);
    for (const TraceEvent& event : step.events) {
      double& lane_end = ends[static_cast<size_t>(event.lane)];
      if (event.start < lane_end - kClockRounding) {
        fail("{} at {:.9f} s begins before what comes before it has ended, at {:.9f} s",
             in_quotes(event.name), event.start, lane_end);
      }
      lane_end = event.start + event.duration;
    }
    for (const double lane_end : ends) {
      if (lane_end > step.start + step.duration + kClockRounding) fail("events end after the step");
    }
  }

  std::string file_;                 // for errors
  std::string where_ = "otherData";  // the entry that is being read, for errors
  int64_t event_number_ = 0;         // of the event that is being read, from 1
};

}  // namespace

int StepTrace::index_of(const GemmShape& product) {
  const auto found = std::ranges::find(products, product);
  if (found != products.end()) return static_cast<int>(found - products.begin());
  products.push_back(product);
  return static_cast<int>(products.size()) - 1;
}

void write_trace(const std::filesystem::path& path, const StepTrace& step) {
  const TraceOrigin& origin = step.origin;
  OrderedJson whole_step =
      span("step", kStepBlock, step.start, step.duration, origin.rank, Lane::compute);
  whole_step["args"] = {{"step", step.number}};
  OrderedJson events = OrderedJson::array({whole_step});
  for (const TraceEvent& event : step.events) events.push_back(event_json(event, origin.rank));
  OrderedJson products = OrderedJson::array();
  for (const GemmShape& product : step.products) products.push_back(product_json(product));
  OrderedJson other_data{{kVersionKey, kVersion},
                         {"processor", origin.processor},
                         {"features", origin.features},
                         {"threads", origin.threads},
                         {"precision", word(origin.precision)},
                         {"gemm_peak", origin.gemm_peak},
                         {"tokens", origin.tokens},
                         {"products", products}};
  if (origin.device != Device::cpu) {
    other_data["device"] = word(origin.device);
    other_data["accelerator"] = origin.accelerator;
  }
  const OrderedJson trace{
      {"traceEvents", events}, {"displayTimeUnit", "ms"}, {"otherData", other_data}};
  write_file(path, trace.dump(1) + "\n");
}

StepTrace read_trace(const std::filesystem::path& path) {
  const std::string file = path.string();
  std::error_code failed;
  if (const uintmax_t size = fs::file_size(path, failed); !failed && size > kMaxFileBytes) {
    throw Error("{}: found a file of {} bytes, expected a trace of at most {}", file, size,
                kMaxFileBytes);
  }
  return TraceParser(file).parse(parse_strict_json(read_file(path), file, kMaxDepth));
}

}  // namespace tessera
