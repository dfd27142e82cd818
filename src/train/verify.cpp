#include "train/verify.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "config/mesh_of.h"
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

/// Keeps the largest of several deviations of one quantity.
class Largest {
 public:
  explicit Largest(std::string quantity) : deviation_{std::move(quantity), 0, {}} {}
  void add(double found, const std::string& where) {
    if (found <= deviation_.relative) return;
    deviation_.relative = found;
    deviation_.where = where;
  }
  const Deviation& deviation() const { return deviation_; }

 private:
  Deviation deviation_;
};

Deviation number_deviation(const char* quantity, const LayoutResults& one,
                           const LayoutResults& layout, double StepResults::*number) {
  Largest largest(quantity);
  for (size_t i = 0; i < one.steps.size(); ++i) {
    const double a = one.steps[i].results.*number, b = layout.steps[i].results.*number;
    largest.add(relative(std::abs(a - b), std::abs(a)), fmt::format("step {}", i + 1));
  }
  return largest.deviation();
}

Deviation count_deviation(const LayoutResults& one, const LayoutResults& layout) {
  Largest largest("router counts");
  for (size_t i = 0; i < one.steps.size(); ++i) {
    const auto &a = one.steps[i].expert_tokens, &b = layout.steps[i].expert_tokens;
    for (size_t layer = 0; layer < a.size(); ++layer) {
      for (size_t expert = 0; expert < a[layer].size(); ++expert) {
        largest.add(relative(std::abs(a[layer][expert] - b[layer][expert]),
                             *std::ranges::max_element(a[layer])),
                    fmt::format("mixture layer {}, expert {}, step {}", layer, expert, i + 1));
      }
    }
  }
  return largest.deviation();
}

Deviation tensor_deviations(const char* quantity, const std::map<std::string, Tensor>& one,
                            const std::map<std::string, Tensor>& layout) {
  Largest largest(quantity);
  for (const auto& [name, tensor] : one) {
    largest.add(tensor_deviation(tensor, layout.at(name)), name);
  }
  return largest.deviation();
}

LayoutTrial trial_of(const RunConfig& config, const Mesh& mesh, const VerifyOptions& options) {
  return {.model = config.model,
          .optimizer = config.optimizer,
          .recompute = recompute_of(config.train.recompute),
          .size = {.sequences = std::min<int64_t>(config.train.micro_batch, 2) * data_ranks(mesh),
                   .context = options.context > 0 ? options.context : short_context(config),
                   .document_mask = config.data.document_mask},
          .seed = config.train.seed,
          .mesh = mesh,
          .experts = expert_layout(config.parallel),
          .threads = static_cast<int>(config.run.threads)};
}

/// Into how many micro-batches one rank divides that of all ranks, so that its balance loss has the
/// sets of tokens that theirs have. Throws Error if its experts' capacity would then have others.
int64_t micro_batches_of_one(const RunConfig& config, const Mesh& mesh) {
  const int64_t ranks = data_ranks(mesh);
  if (!config.model.mixture() || config.model.balance_tokens != BalanceTokens::rank) return 1;
  if (ranks > 1 && config.model.capacity_factor > 0 &&
      config.parallel.capacity_tokens == TokenSet::micro_batch) {
    throw Error(
        "model.balance_tokens is \"rank\" and parallel.capacity_tokens is \"micro_batch\": with "
        "{} data-parallel ranks, one rank cannot have both sets of tokens; verify with "
        "model.balance_tokens = \"micro_batch\"",
        ranks);
  }
  return ranks;
}

/// Runs the first micro-batch once more and compares all values. A difference that needs more than
/// one micro-batch is not found. One micro-batch of one rank has the balance loss of all tokens.
std::optional<StreamDifference> first_difference(const LayoutTrial& of,
                                                 std::span<const std::vector<Batch>> batches) {
  const std::vector<std::vector<Batch>> once{{batches[0][0]}};
  LayoutTrial trial = of;
  trial.streams = true;
  trial.model.balance_tokens = BalanceTokens::micro_batch;
  const LayoutResults layout = run_layout(trial, once);
  trial.mesh = Mesh();
  const LayoutResults one = run_layout(trial, once);
  return compare_streams(one.streams[0], of.mesh, layout.streams, Verification::kBound).first;
}

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

bool Verification::same() const {
  return std::ranges::all_of(exact, [](const Deviation& deviation) {
    return deviation.relative <= (deviation.quantity == "router counts" ? 0 : kBound);
  });
}

int64_t short_context(const RunConfig& config) {
  const ParallelSection& parallel = config.parallel;
  const int64_t pieces = (parallel.context > 1 ? 2 * parallel.context : 1) * parallel.tensor;
  constexpr int64_t kShort = 64;
  return std::min(config.data.context, (kShort + pieces - 1) / pieces * pieces);
}

std::vector<Deviation> deviations(const LayoutResults& one, const LayoutResults& layout) {
  std::vector<Deviation> result{number_deviation("loss", one, layout, &StepResults::cross_entropy)};
  if (!one.steps.front().expert_tokens.empty()) {
    result.push_back(number_deviation("balance loss", one, layout, &StepResults::balance));
    result.push_back(number_deviation("router z-loss", one, layout, &StepResults::router_z));
    result.push_back(count_deviation(one, layout));
  }
  result.push_back(number_deviation("gradient norm", one, layout, &StepResults::gradient_norm));
  result.push_back(tensor_deviations("gradients", one.gradients, layout.gradients));
  result.push_back(tensor_deviations("weights", one.weights, layout.weights));
  return result;
}

Verification verify(const RunConfig& config, const Mesh& mesh, const VerifyOptions& options) {
  constexpr int64_t kMicroBatches = 2;  // enough to see that gradients are added up
  Verification found{.trial = trial_of(config, mesh, options),
                     .steps = options.steps,
                     .micro_batches = static_cast<int>(kMicroBatches)};
  const auto batches = random_batches(found.trial.size, config.model.vocabulary_size, options.steps,
                                      found.micro_batches, config.train.seed);
  const int64_t parts = micro_batches_of_one(config, mesh);
  const auto divided = divide_batches(batches, parts);
  const auto run = [&](const Mesh& on, DType compute) {
    LayoutTrial trial = found.trial;
    trial.mesh = on;
    trial.compute = compute;
    return run_layout(trial, batches);
  };
  const auto run_one = [&](DType compute) {
    LayoutTrial trial = found.trial;
    trial.size.sequences /= parts;
    trial.mesh = Mesh();
    trial.compute = compute;
    return run_layout(trial, divided);
  };
  const LayoutResults exact = run_one(DType::f64);
  found.exact = deviations(exact, run(mesh, DType::f64));
  if (!found.same()) found.first = first_difference(found.trial, batches);
  const DType precision = compute_dtype(config.train.precision);
  const LayoutResults rounded = run_one(precision);
  found.rounded = deviations(rounded, run(mesh, precision));
  found.expected = deviations(exact, rounded);
  found.trial.compute = precision;
  return found;
}

std::string verification_text(const Verification& found) {
  const ProgramSize& size = found.trial.size;
  std::string text = fmt::format(
      "one rank against {}: {} steps of {} micro-batches, each {} sequences of {} random tokens\n"
      "in fp64, where a mistake is larger than {:.0e}:\n",
      found.trial.mesh.text(), found.steps, found.micro_batches, size.sequences, size.context,
      Verification::kBound);
  add_lines(text, found.exact, Verification::kBound);
  if (found.first) {
    text += fmt::format("the first value that differs, by {:.1e}: {}\n", found.first->relative,
                        found.first->place);
  }
  text += fmt::format("in {}, the layout from one rank (and one rank from fp64):\n",
                      dtype_name(found.trial.compute));
  for (size_t i = 0; i < found.rounded.size(); ++i) {
    text += fmt::format("  {:<15} {:.1e}   ({:.1e})\n", found.rounded[i].quantity,
                        found.rounded[i].relative, found.expected[i].relative);
  }
  return text + (found.same() ? "the layout computes the same model\n"
                              : "the layout computes ANOTHER model: see the places above\n");
}

std::string verification_json(const Verification& found) {
  nlohmann::json first;
  if (found.first) {
    first = {{"place", found.first->place}, {"relative_difference", found.first->relative}};
  }
  return nlohmann::json{{"first_difference", first},
                        {"layout", found.trial.mesh.text()},
                        {"ranks", found.trial.mesh.ranks()},
                        {"same", found.same()},
                        {"bound", Verification::kBound},
                        {"fp64", json_of(found.exact)},
                        {"precision", dtype_name(found.trial.compute)},
                        {"rounded", json_of(found.rounded)},
                        {"expected_rounding", json_of(found.expected)}}
             .dump(2) +
         "\n";
}

}  // namespace tessera
