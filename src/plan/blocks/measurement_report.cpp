// Writes reports of measurements as text and as JSON. measured_on() collects the conditions that
// all reports state. The functions for a mixture layer and for attention add the sizes and the
// rates of both passes. Rates are those of the median run.

#include "plan/blocks/measurement_report.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/affinity.h"
#include "base/interrupt.h"
#include "base/quantile.h"
#include "base/text.h"
#include "hardware/accelerator_facts.h"
#include "hardware/device_rate.h"
#include "hardware/gemm_rate.h"
#include "model/model.h"

namespace tessera {
namespace {

using OrderedJson = nlohmann::ordered_json;

/// Returns the tokens of the fullest expert over the balanced number.
double expert_load(const MixtureBlockSizes& sizes, const BlockMeasurement& measurement) {
  const std::vector<int32_t>& counts = measurement.integer_outputs.front();
  const double balanced = static_cast<double>(sizes.tokens * sizes.experts_per_token) /
                          static_cast<double>(sizes.experts);
  return *std::max_element(counts.begin(), counts.end()) / balanced;
}

OrderedJson block_json(const char* bench, const OrderedJson& sizes, const BlockProgram& block,
                       const BlockMeasurement& measurement, const MeasuredOn& on) {
  OrderedJson json{{"bench", bench}, {"sizes", sizes}};
  json["forward_seconds"] = measurement.forward_seconds;
  json["forward_backward_seconds"] = measurement.forward_backward_seconds;
  json["forward_flops"] = block.flops.forward;
  json["flops"] = block.flops.useful();
  json["parameters"] = block.parameters;
  json["arena_bytes"] = measurement.arena_bytes;
  json["peak_memory_bytes"] = measurement.peak_memory_bytes;
  json.update(measured_on_json(on));
  return json;
}

/// Returns a table of both passes and a line about memory.
std::string block_text(const BlockProgram& block, const BlockMeasurement& measurement,
                       const MeasuredOn& on) {
  Table table({"pass", "seconds (10th-90th percentile)", "GFLOP/s", "of the GEMM peak"});
  const auto add = [&](const char* name, std::span<const double> seconds, double rate) {
    table.add({name, median_and_spread(seconds), fmt::format("{:.1f}", rate * 1e-9),
               fmt::format("{:.1f} %", 100 * rate / on.gemm_peak)});
  };
  const PassRates rates = pass_rates(block, measurement);
  add("forward", measurement.forward_seconds, rates.forward);
  add("forward and backward", measurement.forward_backward_seconds, rates.forward_backward);
  return fmt::format("{}{} in weights, gradients and activations, {} the whole process\n",
                     table.text(), format_bytes(measurement.arena_bytes),
                     format_bytes(measurement.peak_memory_bytes));
}

/// Returns the median time of both passes, divided by that of another measurement.
double time_ratio(const BlockMeasurement& measurement, const BlockMeasurement& other) {
  return quantile(measurement.forward_backward_seconds, 0.5) /
         quantile(other.forward_backward_seconds, 0.5);
}

std::string conditions_text(const MeasuredOn& on) {
  return fmt::format("{}\n{}, GEMM peak {:.1f} GFLOP/s\n", describe(on), word(on.precision),
                     on.gemm_peak * 1e-9);
}

}  // namespace

MeasuredOn measured_on(Precision precision, Runtime& runtime, bool bind_threads) {
  const int threads = runtime.threads();
  const BoundTeam team(bind_threads ? threads : 1);
  const DType dtype = compute_dtype(precision);
  const Accelerator* const accelerator = runtime.accelerator();
  const double peak = accelerator == nullptr ? measure_gemm_peak(threads, dtype)
                                             : measure_gemm_peak(runtime, dtype);
  require_no_interrupt();
  return {.processor = this_processor(threads),
          .precision = precision,
          .gemm_peak = peak,
          .device = runtime.target().device,
          .accelerator = accelerator == nullptr ? "" : accelerator->name()};
}

OrderedJson measured_on_json(const MeasuredOn& on) {
  OrderedJson json{{"precision", word(on.precision)},
                   {"gemm_peak", on.gemm_peak},
                   {"processor", processor_json(on.processor)}};
  if (on.device != Device::cpu) {
    json["device"] = word(on.device);
    json["accelerator"] = on.accelerator;
  }
  if (on.device == Device::emulated) json["note"] = kEmulatedFigures;
  if (on.hardware_peak) {
    json["hardware_peak"] = {{"flops", on.hardware_peak->flops},
                             {"source", on.hardware_peak->source}};
  }
  return json;
}

std::string describe(const MeasuredOn& on) {
  if (on.device == Device::cpu) return describe(on.processor);
  std::string text = fmt::format("{}, beside {}", on.accelerator, describe(on.processor));
  if (on.device == Device::emulated) text += fmt::format("\n{}", kEmulatedFigures);
  return text;
}

std::string mfu_text(double flops, const MeasuredOn& on) {
  std::string text =
      fmt::format("{:.1f} % of {:.1f} GFLOP/s ({}, measured now)", 100 * flops / on.gemm_peak,
                  on.gemm_peak * 1e-9, word(on.precision));
  if (const auto& peak = on.hardware_peak) {
    text += fmt::format(", {:.1f} % of {:.1f} GFLOP/s ({})", 100 * flops / peak->flops,
                        peak->flops * 1e-9, peak->source);
  }
  return text;
}

OrderedJson mfu_json(double flops, const MeasuredOn& on) {
  OrderedJson json{{"mfu", flops / on.gemm_peak}};
  if (on.hardware_peak) json["mfu_of_hardware_peak"] = flops / on.hardware_peak->flops;
  return json;
}

std::string median_and_spread(std::span<const double> seconds) {
  return fmt::format("{} ({}-{})", format_seconds(quantile(seconds, 0.5)),
                     format_seconds(quantile(seconds, 0.1)),
                     format_seconds(quantile(seconds, 0.9)));
}

PassRates pass_rates(const BlockProgram& block, const BlockMeasurement& measurement) {
  return {.forward = block.flops.forward / quantile(measurement.forward_seconds, 0.5),
          .forward_backward =
              block.flops.useful() / quantile(measurement.forward_backward_seconds, 0.5)};
}

std::string MixtureReport::json() const {
  const OrderedJson shape{
      {"tokens", sizes.tokens},           {"hidden", sizes.hidden},
      {"experts", sizes.experts},         {"experts_per_token", sizes.experts_per_token},
      {"expert_size", sizes.expert_size}, {"uniform_routing", sizes.uniform_routing}};
  OrderedJson json = block_json("moe", shape, block, measurement, on);
  json["expert_load"] = expert_load(sizes, measurement);
  if (balanced) {
    json["skew"] = sizes.skew;
    json["balanced_forward_seconds"] = balanced->forward_seconds;
    json["balanced_forward_backward_seconds"] = balanced->forward_backward_seconds;
    json["time_over_balanced"] = time_ratio(measurement, *balanced);
  }
  return json.dump() + "\n";
}

std::string MixtureReport::text() const {
  std::string text = fmt::format(
      "mixture of experts: {} tokens of {}, {} experts of {}, {} a token; the fullest expert has "
      "{:.2f} times the balanced load\n{}{}",
      sizes.tokens, sizes.hidden, sizes.experts, sizes.expert_size, sizes.experts_per_token,
      expert_load(sizes, measurement), conditions_text(on), block_text(block, measurement, on));
  if (balanced) {
    text += fmt::format("with a balanced load both passes take {}: skewed, {:.2f} times as long\n",
                        median_and_spread(balanced->forward_backward_seconds),
                        time_ratio(measurement, *balanced));
  }
  return text;
}

std::string AttentionReport::json() const {
  std::string lines;
  for (const auto& [sizes, block, measurement] : lengths) {
    const OrderedJson shape{{"tokens", sizes.tokens},
                            {"heads", sizes.heads},
                            {"kv_heads", sizes.kv_heads},
                            {"head_size", sizes.head_size},
                            {"documents", sizes.documents}};
    lines += block_json("attention", shape, block, measurement, on).dump() + "\n";
  }
  return lines;
}

std::string AttentionReport::text() const {
  std::string text;
  for (const auto& [sizes, block, measurement] : lengths) {
    const std::string documents =
        sizes.documents > 0 ? fmt::format(" in {} documents", sizes.documents) : "";
    text += fmt::format("causal attention: {} tokens{}, {} heads of {} on {} key-value heads\n{}{}",
                        sizes.tokens, documents, sizes.heads, sizes.head_size, sizes.kv_heads,
                        conditions_text(on), block_text(block, measurement, on));
  }
  return text;
}

}  // namespace tessera
