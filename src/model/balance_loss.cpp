// The load-balance loss of the mixture layers of a program: one loss for each layer, or one that
// pools all layers of the model. If several programs have the layers of a pooled loss, each begins
// its sums with those of the program before (EarlierLayers), so they are taken in the order of the
// layers, as in one program.

#include "model/balance_loss.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "ops/elementwise/elementwise.h"
#include "ops/router/balance_counts.h"

namespace tessera {
namespace {

/// Returns whether each data rank has counts of its own. If the data axis has one rank,
/// BalanceTokens::rank means the same as BalanceTokens::micro_batch.
bool counts_by_rank(const ModelWriter& writer) {
  const Mesh& mesh = writer.mesh();
  return writer.config.balance_tokens == BalanceTokens::rank &&
         std::ranges::any_of(mesh.data(), [&](Axis level) { return mesh.size(level) > 1; });
}

/// Returns the counts for a layer's loss.
Value balance_counts(ModelWriter& writer, const RoutedLayer& layer, Value tokens_so_far) {
  if (writer.config.balance_tokens == BalanceTokens::global_batch) {
    return step_counts(writer.builder, tokens_so_far, layer.counts);
  }
  return counts_by_rank(writer)
             ? set_counts(writer.builder, layer.chosen, writer.config.router_classes())
             : layer.counts;
}

/// The specs of the sums that pass from one program to the next.
struct BalanceSpecs {
  Spec probability_sums;
  Spec counts;
};

/// Returns the specs for tokens of the residual stream's shape and distribution. The sums of one
/// layer, written into a program that never runs, have those of all layers.
BalanceSpecs balance_specs(const ModelWriter& writer, const Spec& stream) {
  const ModelConfig& config = writer.config;
  const auto rows = [&](int64_t width, DType dtype) {
    return Spec{{stream.shape[0], width}, dtype, stream.distribution};
  };
  const int64_t classes = config.router_classes();
  Program program(writer.mesh(), writer.builder.program().rank());
  Builder builder(program);
  Value counts;
  if (counts_by_rank(writer)) {
    const Value chosen = builder.input("chosen", rows(config.experts_per_token, DType::i32));
    counts = set_counts(builder, chosen, classes);
  } else {
    const bool means = config.balance_tokens == BalanceTokens::global_batch;
    counts = builder.input("counts", {{classes}, means ? DType::f64 : DType::i32, {}});
  }
  const Value probabilities = builder.input("probabilities", rows(classes, writer.wide()));
  const EarlierLayers sums = layers_so_far(builder, std::span(&probabilities, 1), {&counts, 1});
  return {builder.spec(sums.probability_sums), builder.spec(sums.counts)};
}

}  // namespace

bool passes_balance_sums(const ModelConfig& config, int64_t layer) {
  return config.mixture() && config.balance_coefficient > 0 &&
         config.balance_form == BalanceForm::pooled && layer > config.dense_layers &&
         layer < config.layers;
}

void declare_balance_sums(ModelWriter& writer, const std::string& name, int64_t layer,
                          Boundary& boundary) {
  if (!passes_balance_sums(writer.config, layer)) return;
  const BalanceSpecs specs = balance_specs(writer, writer.builder.spec(boundary.stream));
  boundary.probability_sums =
      writer.builder.input(name + ".probability_sums", specs.probability_sums);
  boundary.counts = writer.builder.input(name + ".counts", specs.counts);
}

void declare_balance_gradients(ModelWriter& writer, const std::string& name, int64_t layer,
                               Boundary& gradients) {
  if (!passes_balance_sums(writer.config, layer)) return;
  Spec spec = balance_specs(writer, writer.builder.spec(gradients.stream)).probability_sums;
  spec.distribution = spec.distribution.dual();
  gradients.probability_sums = writer.builder.input(name + ".probability_sums", spec);
}

BalanceResults write_balance_loss(ModelWriter& writer, std::span<const RoutedLayer> routed,
                                  std::span<const Value> tokens_so_far, const Boundary& boundary,
                                  int64_t end) {
  const ModelConfig& config = writer.config;
  Builder& builder = writer.builder;
  std::vector<Value> probabilities, counts, losses;
  for (size_t i = 0; i < routed.size(); ++i) {
    probabilities.push_back(routed[i].probabilities);
    counts.push_back(balance_counts(writer, routed[i], tokens_so_far[i]));
  }
  const int64_t first = end - std::ssize(routed);
  EarlierLayers earlier;
  if (passes_balance_sums(config, first)) {
    earlier = {.layers = first - config.dense_layers,
               .probability_sums = boundary.probability_sums,
               .counts = boundary.counts};
  }
  if (passes_balance_sums(config, end)) {
    return {.loss = {}, .passed_on = layers_so_far(builder, probabilities, counts, earlier)};
  }
  const size_t layers_per_loss = config.balance_form == BalanceForm::pooled ? routed.size() : 1;
  for (size_t i = 0; i < routed.size(); i += layers_per_loss) {
    losses.push_back(
        load_balance_loss(builder, std::span(probabilities).subspan(i, layers_per_loss),
                          std::span(counts).subspan(i, layers_per_loss), config.balance_coefficient,
                          config.experts_per_token, config.balance_form, earlier));
  }
  return {.loss = add(builder, losses, writer.wide()), .passed_on = {}};
}

}  // namespace tessera
