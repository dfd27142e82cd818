#include "ops/moe/grouped_choice.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/words.h"

namespace tessera {
namespace {

/// Returns GroupedChoice::remark. `reasons` says why the candidates before the chosen are missing.
std::string remark_on(GroupedLibrary chosen, const GroupedShape& shape, const TunedGroups& table,
                      const TunedGrouped* tuned, const std::vector<std::string>& reasons) {
  if (!table.in_use) {
    if (reasons.empty()) return "";
    return fmt::format("{}. {} multiplies the products of experts instead", join(reasons, ". "),
                       word(chosen));
  }
  if (tuned == nullptr) {
    return fmt::format("run.tuned_products does not have {}: {} multiplies them", describe(shape),
                       word(chosen));
  }
  if (chosen == tuned->library) return "";
  return fmt::format(
      "run.tuned_products has {} for products of groups. {}. {} multiplies them instead; tune "
      "again with `tessera bench products`",
      word(tuned->library), join(reasons, ". "), word(chosen));
}

}  // namespace

GroupedChoice choose_grouped(std::string_view operation, const GroupedShape& shape,
                             const TunedGroups& table,
                             std::span<const GroupedCandidate> candidates) {
  const TunedGrouped* const tuned = table.find(shape);
  std::vector<GroupedCandidate> order(candidates.begin(), candidates.end());
  // The library that the table names is asked first.
  std::stable_partition(order.begin(), order.end(), [&](const GroupedCandidate& candidate) {
    return tuned != nullptr && candidate.library == tuned->library;
  });
  std::vector<std::string> reasons;
  for (const GroupedCandidate& candidate : order) {
    std::string reason = candidate.why_missing();
    if (reason.empty()) {
      return {candidate.library, remark_on(candidate.library, shape, table, tuned, reasons)};
    }
    reasons.push_back(std::move(reason));
  }
  throw Error(
      "{}: no library multiplies experts in bf16 here. {}. Mend one of them, or set "
      "train.precision = \"fp32\"",
      operation, join(reasons, ". "));
}

const GroupedLibrary* GroupedChoices::find(const GroupedShape& shape) const {
  const auto found = libraries_.find(shape);
  return found == libraries_.end() ? nullptr : &found->second;
}

GroupedLibrary GroupedChoices::keep(const GroupedShape& shape, const GroupedChoice& choice) {
  if (!choice.remark.empty() && logged_.insert(choice.remark).second) {
    Logger().info("{}", choice.remark);
  }
  return libraries_.emplace(shape, choice.library).first->second;
}

std::vector<GroupedShape> GroupedChoices::shapes() const {
  std::vector<GroupedShape> shapes;
  for (const auto& [shape, library] : libraries_) shapes.push_back(shape);
  return shapes;
}

}  // namespace tessera
