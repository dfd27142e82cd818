#include <nlohmann/json.hpp>

#include "base/file.h"
#include "engine/gemm_json.h"
#include "engine/step_trace.h"
#include "engine/trace_format.h"

namespace tessera {
namespace {

using OrderedJson = nlohmann::ordered_json;

/// Returns an event in which ranks are processes and lanes are threads.
OrderedJson span(std::string_view name, std::string_view category, double start, double duration,
                 int rank, Lane lane) {
  return {{"name", name},
          {"cat", category},
          {"ph", "X"},
          {"ts", start * kTraceMicroseconds},
          {"dur", duration * kTraceMicroseconds},
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

}  // namespace

OrderedJson product_json(const GemmShape& shape) {
  OrderedJson json = gemm_json(shape);
  json["packed_b"] = shape.packed_b;
  json["threads"] = shape.threads;
  return json;
}

void write_trace(const std::filesystem::path& path, const StepTrace& step) {
  const TraceOrigin& origin = step.origin;
  OrderedJson whole =
      span("step", kTraceStepBlock, step.start, step.duration, origin.rank, Lane::compute);
  whole["args"] = {{"step", step.number}};
  OrderedJson events = OrderedJson::array({whole});
  for (const TraceEvent& event : step.events) events.push_back(event_json(event, origin.rank));
  OrderedJson products = OrderedJson::array();
  for (const GemmShape& product : step.products) products.push_back(product_json(product));
  OrderedJson other{{kTraceVersionKey, kTraceVersion},
                    {"processor", origin.processor},
                    {"features", origin.features},
                    {"threads", origin.threads},
                    {"precision", word(origin.precision)},
                    {"gemm_peak", origin.gemm_peak},
                    {"tokens", origin.tokens},
                    {"products", products}};
  if (origin.device != Device::cpu) {
    other["device"] = word(origin.device);
    other["accelerator"] = origin.accelerator;
  }
  const OrderedJson trace{{"traceEvents", events}, {"displayTimeUnit", "ms"}, {"otherData", other}};
  write_file(path, trace.dump(1) + "\n");
}

}  // namespace tessera
