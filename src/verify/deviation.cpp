#include "verify/deviation.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "tensor/dispatch.h"

// all_deviations() lists a deviation for each number, expert count and gradient of each step and
// for each weight. The other functions select from that list, or compare bits instead of sizes.

namespace tessera {
namespace {

constexpr double kZeroGradient = 1e-3;  // see Deviation::relative

/// Returns a difference relative to a size; infinity if the result would be NaN.
double relative(double difference, double size) {
  if (difference == 0) return 0;
  const double result = difference / size;
  return std::isnan(result) ? std::numeric_limits<double>::infinity() : result;
}

double largest_number(const Tensor& tensor) {
  double largest = 0;
  dispatch_wide(tensor.dtype(), [&](auto type) {
    for (const auto element : tensor.values<decltype(type)>()) {
      largest = std::max(largest, std::abs(static_cast<double>(element)));
    }
  });
  return largest;
}

double largest_difference(const Tensor& one_rank, const Tensor& layout) {
  double difference = 0;
  const auto compare = [&](auto one_numbers, auto layout_numbers) {
    for (int64_t i = 0; i < one_rank.elements(); ++i) {
      const auto a = static_cast<double>(one_numbers[i]),
                 b = static_cast<double>(layout_numbers[i]);
      if (std::isnan(a - b)) difference = std::numeric_limits<double>::infinity();
      difference = std::max(difference, std::abs(a - b));
    }
  };
  dispatch_wide(one_rank.dtype(), [&](auto a) {
    dispatch_wide(layout.dtype(), [&](auto b) {
      compare(one_rank.data<decltype(a)>(), layout.data<decltype(b)>());
    });
  });
  return difference;
}

/// Compares two runs, and collects the deviations that it finds.
class Comparison {
 public:
  Comparison(const LayoutResults& one_rank, const LayoutResults& layout)
      : one_rank_(one_rank), layout_(layout) {}

  void numbers(const char* quantity, double StepResults::*number) {
    for (size_t i = 0; i < one_rank_.steps.size(); ++i) {
      const double a = one_rank_.steps[i].results.*number, b = layout_.steps[i].results.*number;
      add(quantity, std::abs(a - b), std::abs(a), fmt::format("step {}", i + 1));
    }
  }

  void counts() {
    for (size_t i = 0; i < one_rank_.steps.size(); ++i) {
      const auto &a = one_rank_.steps[i].expert_tokens, &b = layout_.steps[i].expert_tokens;
      for (size_t layer = 0; layer < a.size(); ++layer) {
        for (size_t expert = 0; expert < a[layer].size(); ++expert) {
          add("router counts", std::abs(a[layer][expert] - b[layer][expert]),
              *std::ranges::max_element(a[layer]),
              fmt::format("mixture layer {}, expert {}, step {}", layer, expert, i + 1));
        }
      }
    }
  }

  void gradients() {
    for (size_t i = 0; i < one_rank_.gradients.size(); ++i) {
      double largest_of_all = 0;
      for (const auto& [name, tensor] : one_rank_.gradients[i]) {
        largest_of_all = std::max(largest_of_all, largest_number(tensor));
      }
      for (const auto& [name, tensor] : one_rank_.gradients[i]) {
        add("gradients", largest_difference(tensor, layout_.gradients[i].at(name)),
            std::max(largest_number(tensor), kZeroGradient * largest_of_all),
            fmt::format("{}, step {}", name, i + 1), name);
      }
    }
  }

  void weights() {
    for (const auto& [name, tensor] : one_rank_.weights) {
      add("weights", largest_difference(tensor, layout_.weights.at(name)), largest_number(tensor),
          name, name);
    }
  }

  std::vector<Deviation> found() && { return std::move(found_); }

 private:
  void add(const char* quantity, double difference, double largest, std::string where,
           std::string tensor = "") {
    found_.push_back({.quantity = quantity,
                      .relative = relative(difference, largest),
                      .where = std::move(where),
                      .tensor = std::move(tensor),
                      .difference = difference,
                      .largest = largest});
  }

  const LayoutResults &one_rank_, &layout_;
  std::vector<Deviation> found_;
};

/// Returns the deviations of a layout's results from one rank's: by quantity, then tensor or step.
std::vector<Deviation> all_deviations(const LayoutResults& one_rank, const LayoutResults& layout) {
  Comparison comparison(one_rank, layout);
  comparison.numbers("loss", &StepResults::cross_entropy);
  if (!one_rank.steps.front().expert_tokens.empty()) {
    comparison.numbers("balance loss", &StepResults::balance);
    comparison.numbers("router z-loss", &StepResults::router_z);
    comparison.counts();
  }
  comparison.numbers("gradient norm", &StepResults::gradient_norm);
  comparison.gradients();
  comparison.weights();
  return std::move(comparison).found();
}

/// Returns the largest relative change by rounding to a type: half a unit in its last digit.
double rounding_of(DType type) {
  if (type == DType::bf16) return std::ldexp(1.0, -9);
  return type == DType::f32 ? std::ldexp(1.0, -24) : std::ldexp(1.0, -53);
}

/// Returns the type to which a quantity is rounded at least once (see largest_rounding()).
DType type_of(const Deviation& deviation, DType compute, DType wire) {
  if (deviation.quantity == "gradients") return wire;
  const bool from_update = deviation.quantity == "weights" || deviation.quantity == "gradient norm";
  return from_update ? accumulation_dtype(compute) : compute;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::memcmp(a.address(), b.address(), static_cast<size_t>(a.bytes())) == 0;
}

}  // namespace

std::vector<Deviation> deviations(const LayoutResults& one_rank, const LayoutResults& layout) {
  std::vector<Deviation> result;
  for (const Deviation& deviation : all_deviations(one_rank, layout)) {
    if (result.empty() || result.back().quantity != deviation.quantity) {
      result.push_back({.quantity = deviation.quantity});
    }
    if (deviation.relative > result.back().relative) result.back() = deviation;
  }
  return result;
}

RoundingRatio largest_rounding(const LayoutResults& exact, const LayoutResults& rounded,
                               const LayoutResults& layout, DType compute, DType wire) {
  std::map<std::pair<std::string, std::string>, double> expected;  // by quantity and tensor
  for (const Deviation& deviation : all_deviations(exact, rounded)) {
    double& largest = expected[{deviation.quantity, deviation.tensor}];
    largest = std::max(largest, deviation.difference);
  }
  RoundingRatio result;
  for (const Deviation& deviation : all_deviations(rounded, layout)) {
    if (deviation.difference == 0) continue;
    const double rounding = deviation.largest * rounding_of(type_of(deviation, compute, wire));
    const double expected_difference = expected.at({deviation.quantity, deviation.tensor});
    const double times = deviation.difference / std::max(expected_difference, rounding);
    if (times > result.times) result = {deviation, times};
  }
  return result;
}

std::optional<std::string> first_stale_weight(const LayoutResults& layout) {
  for (const auto& [name, computed] : layout.computed_weights) {
    const Tensor rounded(computed.shape(), computed.dtype());
    convert(layout.weights.at(name), rounded);
    if (!same_bits(rounded, computed)) return name;
  }
  return std::nullopt;
}

std::optional<std::string> first_different_bits(const LayoutResults& one_rank,
                                                const LayoutResults& layout) {
  for (size_t i = 0; i < one_rank.steps.size(); ++i) {
    if (one_rank.steps[i] != layout.steps[i]) return fmt::format("the results of step {}", i + 1);
  }
  for (size_t i = 0; i < one_rank.gradients.size(); ++i) {
    for (const auto& [name, tensor] : one_rank.gradients[i]) {
      if (same_bits(tensor, layout.gradients[i].at(name))) continue;
      return fmt::format("the gradient of {}, step {}", name, i + 1);
    }
  }
  for (const auto& [name, tensor] : one_rank.weights) {
    if (!same_bits(tensor, layout.weights.at(name))) return "the weight " + name;
  }
  return std::nullopt;
}

}  // namespace tessera
