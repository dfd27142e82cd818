#include <unordered_map>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "engine/step_trace.h"
#include "engine/trace_format.h"

namespace tessera {
namespace {

using OrderedJson = nlohmann::ordered_json;

/// The distinct products of a step, which events name by their number.
class ProductList {
 public:
  size_t number(const GemmShape& shape) {
    const auto [found, added] = numbers_.try_emplace(shape, shapes_.size());
    if (added) shapes_.push_back(shape);
    return found->second;
  }

  OrderedJson json() const {
    OrderedJson list = OrderedJson::array();
    for (const GemmShape& shape : shapes_) list.push_back(product_json(shape));
    return list;
  }

 private:
  std::vector<GemmShape> shapes_;
  std::unordered_map<GemmShape, size_t, GemmShapeHash> numbers_;
};

OrderedJson span(std::string_view name, std::string_view category, double start, double duration) {
  return {{"name", name},
          {"cat", category},
          {"ph", "X"},
          {"ts", start * kTraceMicroseconds},
          {"dur", duration * kTraceMicroseconds},
          {"pid", 0},
          {"tid", 0}};
}

OrderedJson event_json(const TraceEvent& event, ProductList& products) {
  OrderedJson runs = OrderedJson::array();
  for (const GemmRuns& product : event.products) {
    runs.push_back({products.number(product.shape), product.runs});
  }
  OrderedJson result = span(event.name, event.block, event.start, event.duration);
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
  return {{"m", shape.m},
          {"n", shape.n},
          {"k", shape.k},
          {"input", dtype_name(shape.input)},
          {"output", dtype_name(shape.output)},
          {"transpose_a", shape.transpose_a},
          {"transpose_b", shape.transpose_b},
          {"accumulate", shape.accumulate},
          {"packed_b", shape.packed_b},
          {"lda", shape.lda},
          {"ldb", shape.ldb},
          {"ldc", shape.ldc},
          {"threads", shape.threads}};
}

void write_trace(const std::filesystem::path& path, const StepTrace& step) {
  ProductList products;
  OrderedJson whole = span("step", kTraceStepBlock, step.start, step.duration);
  whole["args"] = {{"step", step.number}};
  OrderedJson events = OrderedJson::array({whole});
  for (const TraceEvent& event : step.events) events.push_back(event_json(event, products));
  const TraceOrigin& origin = step.origin;
  const OrderedJson other{{kTraceVersionKey, kTraceVersion},
                          {"processor", origin.processor},
                          {"features", origin.features},
                          {"threads", origin.threads},
                          {"precision", word(origin.precision)},
                          {"gemm_peak", origin.gemm_peak},
                          {"tokens", origin.tokens},
                          {"products", products.json()}};
  const OrderedJson trace{{"traceEvents", events}, {"displayTimeUnit", "ms"}, {"otherData", other}};
  write_file(path, trace.dump(1) + "\n");
}

}  // namespace tessera
