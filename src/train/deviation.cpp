#include "train/deviation.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "base/error.h"
#include "tensor/dispatch.h"

namespace tessera {
namespace {

double relative(double difference, double size) {
  if (difference == 0) return 0;
  const double result = difference / size;
  return std::isnan(result) ? std::numeric_limits<double>::infinity() : result;
}

double tensor_deviation(const Tensor& one, const Tensor& layout) {
  double largest = 0, difference = 0;
  const auto compare = [&](auto of_one, auto of_layout) {
    for (int64_t i = 0; i < one.elements(); ++i) {
      const auto a = static_cast<double>(of_one[i]), b = static_cast<double>(of_layout[i]);
      largest = std::max(largest, std::abs(a));
      if (std::isnan(a - b)) difference = std::numeric_limits<double>::infinity();
      difference = std::max(difference, std::abs(a - b));
    }
  };
  dispatch_wide(one.dtype(), [&](auto a) {
    dispatch_wide(layout.dtype(),
                  [&](auto b) { compare(one.data<decltype(a)>(), layout.data<decltype(b)>()); });
  });
  return relative(difference, largest);
}

/// Compares two runs and keeps what it finds.
class Comparison {
 public:
  Comparison(const LayoutResults& one, const LayoutResults& layout) : one_(one), layout_(layout) {}

  void numbers(const char* quantity, double StepResults::*number) {
    for (size_t i = 0; i < one_.steps.size(); ++i) {
      const double a = one_.steps[i].results.*number, b = layout_.steps[i].results.*number;
      add(quantity, relative(std::abs(a - b), std::abs(a)), fmt::format("step {}", i + 1),
          i > 0 || number == &StepResults::gradient_norm);
    }
  }

  void counts() {
    for (size_t i = 0; i < one_.steps.size(); ++i) {
      const auto &a = one_.steps[i].expert_tokens, &b = layout_.steps[i].expert_tokens;
      for (size_t layer = 0; layer < a.size(); ++layer) {
        for (size_t expert = 0; expert < a[layer].size(); ++expert) {
          add("router counts",
              relative(std::abs(a[layer][expert] - b[layer][expert]),
                       *std::ranges::max_element(a[layer])),
              fmt::format("mixture layer {}, expert {}, step {}", layer, expert, i + 1), i > 0);
        }
      }
    }
  }

  using Tensors = std::map<std::string, Tensor>;
  void tensors(const char* quantity, Tensors LayoutResults::*tensors) {
    for (const auto& [name, tensor] : one_.*tensors) {
      add(quantity, tensor_deviation(tensor, (layout_.*tensors).at(name)), name);
    }
  }

  std::vector<Deviation> found() && { return std::move(found_); }

 private:
  void add(const char* quantity, double found, std::string where, bool of_gradients = true) {
    found_.push_back({quantity, found, std::move(where), of_gradients});
  }

  const LayoutResults &one_, &layout_;
  std::vector<Deviation> found_;
};

/// The largest of each quantity, in the order in which they appear.
std::vector<Deviation> largest_of(const std::vector<Deviation>& all) {
  std::vector<Deviation> result;
  for (const Deviation& deviation : all) {
    if (result.empty() || result.back().quantity != deviation.quantity) {
      result.push_back({deviation.quantity, 0, {}, deviation.of_gradients});
    }
    if (deviation.relative > result.back().relative) result.back() = deviation;
  }
  return result;
}

/// What rounding to a type changes a number by at most, over the number.
double rounding_of(DType type) {
  if (type == DType::bf16) return std::ldexp(1.0, -9);
  return type == DType::f32 ? std::ldexp(1.0, -24) : std::ldexp(1.0, -53);
}

bool same_bits(const Tensor& one, const Tensor& layout) {
  return one.dtype() == layout.dtype() && one.shape() == layout.shape() &&
         std::memcmp(one.address(), layout.address(), static_cast<size_t>(one.bytes())) == 0;
}

}  // namespace

std::vector<Deviation> all_deviations(const LayoutResults& one, const LayoutResults& layout) {
  Comparison comparison(one, layout);
  comparison.numbers("loss", &StepResults::cross_entropy);
  if (!one.steps.front().expert_tokens.empty()) {
    comparison.numbers("balance loss", &StepResults::balance);
    comparison.numbers("router z-loss", &StepResults::router_z);
    comparison.counts();
  }
  comparison.numbers("gradient norm", &StepResults::gradient_norm);
  comparison.tensors("gradients", &LayoutResults::gradients);
  comparison.tensors("weights", &LayoutResults::weights);
  return std::move(comparison).found();
}

std::vector<Deviation> deviations(const LayoutResults& one, const LayoutResults& layout) {
  return largest_of(all_deviations(one, layout));
}

RoundingRatio largest_rounding(const LayoutResults& exact, const LayoutResults& rounded,
                               const LayoutResults& layout, DType compute, DType wire) {
  const std::vector<Deviation> expected = all_deviations(exact, rounded);
  const std::vector<Deviation> largest = largest_of(expected);
  const std::vector<Deviation> found = all_deviations(rounded, layout);
  TESSERA_CHECK(expected.size() == found.size(), "{} and {} numbers of one model", expected.size(),
                found.size());
  RoundingRatio result;
  for (size_t i = 0; i < found.size(); ++i) {
    const auto of_quantity = std::ranges::find(largest, found[i].quantity, &Deviation::quantity);
    const Deviation& to_expect = found[i].quantity == "gradients" ? expected[i] : *of_quantity;
    const double least = rounding_of(found[i].of_gradients ? wire : compute);
    const RoundingRatio ratio{found[i], std::max(to_expect.relative, least)};
    if (ratio.times() > result.times()) result = ratio;
  }
  return result;
}

std::optional<std::string> first_other_bits(const LayoutResults& one, const LayoutResults& layout) {
  for (size_t i = 0; i < one.steps.size(); ++i) {
    if (!(one.steps[i] == layout.steps[i])) return fmt::format("the results of step {}", i + 1);
  }
  for (const auto& [name, tensor] : one.gradients) {
    if (!same_bits(tensor, layout.gradients.at(name))) return "the gradient of " + name;
  }
  for (const auto& [name, tensor] : one.weights) {
    if (!same_bits(tensor, layout.weights.at(name))) return "the weight " + name;
  }
  return std::nullopt;
}

}  // namespace tessera
