#include <span>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "verify/verify.h"

// The text lists the deviations in f64, the first value that differs (if one does), the rounding,
// the bits, and what is wrong with copies and bytes. Its verdict names the worst finding.

namespace tessera {
namespace {

void add_lines(std::string& text, std::span<const Deviation> deviations, double bound) {
  for (const Deviation& deviation : deviations) {
    text +=
        fmt::format("  {:<15} {:<9}", deviation.quantity,
                    deviation.relative == 0 ? "equal" : fmt::format("{:.1e}", deviation.relative));
    if (deviation.relative > bound) text += fmt::format(" {}", deviation.where);
    while (text.back() == ' ') text.pop_back();
    text += "\n";
  }
}

std::string deviation_text(const Deviation& deviation) {
  return fmt::format("{}, {}", deviation.quantity, deviation.where);
}

/// Returns the text about the values inside the model. Values that the layout computes in another
/// way, such as the rows of an exchange, have no counterpart. A mistake there shows in a later one.
std::string values_text(const StreamComparison& values) {
  if (values.first) {
    return fmt::format(
        "the first value that differs, by {:.1e}: {}; of the {} values before it, {} have no "
        "counterpart and were not compared\n",
        values.first->relative, values.first->name, values.first->before,
        values.first->unmatched_before);
  }
  return fmt::format(
      "none of {} values on the way differs in the first micro-batch; {} more have no counterpart "
      "and were not compared\n",
      values.compared, values.unmatched);
}

std::string compared_text(const Verification& result) {
  std::string text = fmt::format(
      "in {}{}, the layout from one rank (and one rank from fp64):\n",
      dtype_name(result.trial.compute),
      result.trial.model.mixture() ? " with the choices of experts pinned to those of fp64" : "");
  for (size_t i = 0; i < result.rounded.size(); ++i) {
    text += fmt::format("  {:<15} {:.1e}   ({:.1e})\n", result.rounded[i].quantity,
                        result.rounded[i].relative, result.expected[i].relative);
  }
  if (result.rounding.times > 0) {
    text += fmt::format(
        "  at most {:.1f} times what is to be expected, where a mistake is over "
        "{}: {}\n",
        result.rounding.times, Verification::kRoundingBound,
        deviation_text(result.rounding.deviation));
  }
  return text;
}

std::string rounded_text(const Verification& result) {
  std::string text;
  if (!result.rounded.empty()) text = compared_text(result);
  if (!result.bits) {
    const std::string why = why_bits_not_compared(result.trial);
    return text + (why.empty() ? "" : fmt::format("bits were not compared: {}\n", why));
  }
  return text + "one rank that adds up in the layout's order has " +
         (result.bits->empty() ? "the same bits\n"
                               : fmt::format("OTHER BITS, first in {}\n", *result.bits));
}

std::string bytes_text(const GradientBytes& bytes) {
  if (bytes.equal()) return "";
  return fmt::format(
      "for the sums of gradients {:.0f} bytes were counted on the wire, and {:.0f} "
      "are what shard.gradients_wire says\n",
      bytes.counted, bytes.expected);
}

std::string disagreement_text(const Verification& result) {
  std::string text;
  for (const auto& difference : {result.unequal_results, result.unequal_copies}) {
    if (difference) text += *difference + "\n";
  }
  return text;
}

std::string verdict(const Verification& result) {
  // If ranks disagree, the numbers that were compared are those of one of them.
  if (result.unequal_results) {
    return "the ranks of the layout report OTHER RESULTS, which should be those of all ranks\n";
  }
  if (result.unequal_copies) {
    return "the ranks of the layout have OTHER COPIES of what they should hold alike\n";
  }
  if (!result.same()) return "the layout computes ANOTHER model: see the places above\n";
  if (result.stale_weight) {
    return fmt::format(
        "the layout computes with OTHER WEIGHTS than it updates: {} is not its "
        "master, rounded\n",
        *result.stale_weight);
  }
  if (!result.gradient_bytes.equal()) {
    return "the layout computes the same model, but sends OTHER BYTES than it should\n";
  }
  if (!result.rounds_as_expected()) {
    return fmt::format("the layout computes the same model, but ROUNDS MORE than it should: {}\n",
                       deviation_text(result.rounding.deviation));
  }
  if (!result.passed()) return "the layout computes the same model, but NOT THE SAME BITS\n";
  return "the layout computes the same model\n";
}

nlohmann::json json_of(std::span<const Deviation> deviations) {
  nlohmann::json result = nlohmann::json::array();
  for (const Deviation& deviation : deviations) {
    result.push_back({{"quantity", deviation.quantity},
                      {"relative_difference", deviation.relative},
                      {"where", deviation.where}});
  }
  return result;
}

}  // namespace

std::string verification_text(const Verification& result) {
  const ProgramSize& size = result.trial.size;
  std::string text = fmt::format(
      "one rank against {}: {} steps of {} micro-batches, each {} sequences of {} random tokens\n"
      "{}in fp64, where a mistake is larger than {:.0e}:\n",
      result.trial.mesh.text(), result.steps, result.micro_batches, size.sequences, size.context,
      result.cut.empty() ? "" : result.cut + "\n", Verification::kBound);
  add_lines(text, result.exact, Verification::kBound);
  if (result.values) text += values_text(*result.values);
  return text + rounded_text(result) + disagreement_text(result) +
         bytes_text(result.gradient_bytes) + verdict(result);
}

std::string verification_json(const Verification& result, const std::string& phase) {
  nlohmann::json first, values, bits;
  if (result.values) {
    values = {{"compared", result.values->compared}, {"not_compared", result.values->unmatched}};
  }
  if (result.values && result.values->first) {
    const StreamDifference& difference = *result.values->first;
    first = {{"place", difference.name},
             {"relative_difference", difference.relative},
             {"values_before", difference.before},
             {"not_compared_before", difference.unmatched_before}};
  }
  if (result.bits) bits = {{"same", result.bits->empty()}, {"first_other", *result.bits}};
  const RoundingRatio& rounding = result.rounding;
  nlohmann::json json{
      {"first_difference", first},
      {"values", values},
      {"layout", result.trial.mesh.text()},
      {"ranks", result.trial.mesh.ranks()},
      {"sequences", result.trial.size.sequences},
      {"context", result.trial.size.context},
      {"cut", result.cut},
      {"passed", result.passed()},
      {"same", result.same()},
      {"bound", Verification::kBound},
      {"fp64", json_of(result.exact)},
      {"other_copies", result.unequal_copies.value_or("")},
      {"other_results", result.unequal_results.value_or("")},
      {"stale_weight", result.stale_weight.value_or("")},
      {"gradient_bytes",
       {{"counted", result.gradient_bytes.counted}, {"expected", result.gradient_bytes.expected}}},
      {"precision", dtype_name(result.trial.compute)},
      {"pinned_choices", result.trial.model.mixture()},
      {"rounded", json_of(result.rounded)},
      {"expected_rounding", json_of(result.expected)},
      {"largest_rounding",
       {{"times_expected", rounding.times},
        {"bound", Verification::kRoundingBound},
        {"quantity", rounding.deviation.quantity},
        {"where", rounding.deviation.where}}},
      {"bits_in_the_layouts_order", bits},
      {"bits_not_compared", result.bits ? "" : why_bits_not_compared(result.trial)}};
  if (!phase.empty()) json["phase"] = phase;
  return json.dump(2) + "\n";
}

}  // namespace tessera
