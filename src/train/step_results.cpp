#include "train/step_results.h"

#include <bit>

#include "base/error.h"

namespace tessera {
namespace {

/// Calls a function with every member or, unless `all`, with those that have the
/// same bits on all ranks.
void for_each_member(auto& results, bool all, auto&& visit) {
  // Names all members, so that it does not compile when StepResults gets another one.
  auto& [cross_entropy, balance, router_z, targets, tokens, expert_load, skipped, gradient_norm,
         updated, update_rms, orthogonality_error] = results;
  const auto visit_each = [&](auto&... members) { (visit(members), ...); };
  visit_each(cross_entropy, balance, router_z, targets, tokens, expert_load, skipped, gradient_norm,
             updated);
  if (all) visit_each(update_rms, orthogonality_error);
}

/// Appends members as bits.
struct BitWriter {
  std::vector<uint64_t>& bits;

  void operator()(double value) const { bits.push_back(std::bit_cast<uint64_t>(value)); }
  void operator()(int64_t value) const { bits.push_back(static_cast<uint64_t>(value)); }
  void operator()(bool value) const { bits.push_back(value ? 1 : 0); }
  void operator()(const std::optional<double>& value) const {
    (*this)(value.has_value());
    (*this)(value.value_or(0));
  }
};

/// Reads members from bits.
class BitReader {
 public:
  explicit BitReader(std::span<const uint64_t> bits) : bits_(bits) {}

  void operator()(double& value) { value = std::bit_cast<double>(next()); }
  void operator()(int64_t& value) { value = static_cast<int64_t>(next()); }
  void operator()(bool& value) { value = next() != 0; }
  void operator()(std::optional<double>& value) {
    const bool has_value = next() != 0;
    const auto number = std::bit_cast<double>(next());
    value = has_value ? std::optional(number) : std::nullopt;
  }

 private:
  uint64_t next() {
    const uint64_t first = bits_.front();
    bits_ = bits_.subspan(1);
    return first;
  }

  std::span<const uint64_t> bits_;
};

std::vector<uint64_t> bits_of_members(const StepResults& results, bool all) {
  std::vector<uint64_t> bits;
  for_each_member(results, all, BitWriter{bits});
  return bits;
}

}  // namespace

bool StepResults::operator==(const StepResults& other) const {
  return bits_of_members(*this, false) == bits_of_members(other, false);
}

std::vector<uint64_t> bits_of(const StepResults& results) { return bits_of_members(results, true); }

StepResults step_results_of(std::span<const uint64_t> bits) {
  StepResults results;
  const size_t expected = bits_of(results).size();
  TESSERA_CHECK(bits.size() == expected, "the results of a step are {} numbers, not {}", expected,
                bits.size());
  for_each_member(results, true, BitReader(bits));
  return results;
}

}  // namespace tessera
