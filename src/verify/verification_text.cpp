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
/// way, such as the rows of an exchange, have no counterpart. A mistake that begins in such a value
/// is seen in a later one.
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

std::string compared_text(const Verification& found) {
  std::string text = fmt::format(
      "in {}{}, the layout from one rank (and one rank from fp64):\n",
      dtype_name(found.trial.compute),
      found.trial.model.mixture() ? " with the choices of experts pinned to those of fp64" : "");
  for (size_t i = 0; i < found.rounded.size(); ++i) {
    text += fmt::format("  {:<15} {:.1e}   ({:.1e})\n", found.rounded[i].quantity,
                        found.rounded[i].relative, found.expected[i].relative);
  }
  if (found.rounding.times > 0) {
    text += fmt::format(
        "  at most {:.1f} times what is to be expected, where a mistake is over "
        "{}: {}\n",
        found.rounding.times, Verification::kRoundingBound,
        deviation_text(found.rounding.deviation));
  }
  return text;
}

std::string rounded_text(const Verification& found) {
  std::string text;
  if (!found.rounded.empty()) text = compared_text(found);
  if (!found.bits) {
    const std::string why = why_bits_not_compared(found.trial);
    return text + (why.empty() ? "" : fmt::format("bits were not compared: {}\n", why));
  }
  return text + "one rank that adds up in the layout's order has " +
         (found.bits->empty() ? "the same bits\n"
                              : fmt::format("OTHER BITS, first in {}\n", *found.bits));
}

std::string bytes_text(const GradientBytes& bytes) {
  if (bytes.equal()) return "";
  return fmt::format(
      "for the sums of gradients {:.0f} bytes were counted on the wire, and {:.0f} "
      "are what shard.gradients_wire says\n",
      bytes.counted, bytes.expected);
}

std::string disagreement_text(const Verification& found) {
  std::string text;
  for (const auto& difference : {found.unequal_results, found.unequal_copies}) {
    if (difference) text += *difference + "\n";
  }
  return text;
}

std::string verdict(const Verification& found) {
  // If ranks disagree, the numbers that were compared are those of one of them.
  if (found.unequal_results) {
    return "the ranks of the layout report OTHER RESULTS, which should be those of all ranks\n";
  }
  if (found.unequal_copies) {
    return "the ranks of the layout have OTHER COPIES of what they should hold alike\n";
  }
  if (!found.same()) return "the layout computes ANOTHER model: see the places above\n";
  if (found.stale_weight) {
    return fmt::format(
        "the layout computes with OTHER WEIGHTS than it updates: {} is not its "
        "master, rounded\n",
        *found.stale_weight);
  }
  if (!found.gradient_bytes.equal()) {
    return "the layout computes the same model, but sends OTHER BYTES than it should\n";
  }
  if (!found.rounds_as_expected()) {
    return fmt::format("the layout computes the same model, but ROUNDS MORE than it should: {}\n",
                       deviation_text(found.rounding.deviation));
  }
  if (!found.passed()) return "the layout computes the same model, but NOT THE SAME BITS\n";
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

std::string verification_text(const Verification& found) {
  const ProgramSize& size = found.trial.size;
  std::string text = fmt::format(
      "one rank against {}: {} steps of {} micro-batches, each {} sequences of {} random tokens\n"
      "{}in fp64, where a mistake is larger than {:.0e}:\n",
      found.trial.mesh.text(), found.steps, found.micro_batches, size.sequences, size.context,
      found.cut.empty() ? "" : found.cut + "\n", Verification::kBound);
  add_lines(text, found.exact, Verification::kBound);
  if (found.values) text += values_text(*found.values);
  return text + rounded_text(found) + disagreement_text(found) + bytes_text(found.gradient_bytes) +
         verdict(found);
}

std::string verification_json(const Verification& found, const std::string& phase) {
  nlohmann::json first, values, bits;
  if (found.values) {
    values = {{"compared", found.values->compared}, {"not_compared", found.values->unmatched}};
  }
  if (found.values && found.values->first) {
    const StreamDifference& difference = *found.values->first;
    first = {{"place", difference.name},
             {"relative_difference", difference.relative},
             {"values_before", difference.before},
             {"not_compared_before", difference.unmatched_before}};
  }
  if (found.bits) bits = {{"same", found.bits->empty()}, {"first_other", *found.bits}};
  const RoundingRatio& rounding = found.rounding;
  nlohmann::json json{
      {"first_difference", first},
      {"values", values},
      {"layout", found.trial.mesh.text()},
      {"ranks", found.trial.mesh.ranks()},
      {"sequences", found.trial.size.sequences},
      {"context", found.trial.size.context},
      {"cut", found.cut},
      {"passed", found.passed()},
      {"same", found.same()},
      {"bound", Verification::kBound},
      {"fp64", json_of(found.exact)},
      {"other_copies", found.unequal_copies.value_or("")},
      {"other_results", found.unequal_results.value_or("")},
      {"stale_weight", found.stale_weight.value_or("")},
      {"gradient_bytes",
       {{"counted", found.gradient_bytes.counted}, {"expected", found.gradient_bytes.expected}}},
      {"precision", dtype_name(found.trial.compute)},
      {"pinned_choices", found.trial.model.mixture()},
      {"rounded", json_of(found.rounded)},
      {"expected_rounding", json_of(found.expected)},
      {"largest_rounding",
       {{"times_expected", rounding.times},
        {"bound", Verification::kRoundingBound},
        {"quantity", rounding.deviation.quantity},
        {"where", rounding.deviation.where}}},
      {"bits_in_the_layouts_order", bits},
      {"bits_not_compared", found.bits ? "" : why_bits_not_compared(found.trial)}};
  if (!phase.empty()) json["phase"] = phase;
  return json.dump(2) + "\n";
}

}  // namespace tessera
