#include "train/training_step.h"

#include <algorithm>

#include "base/error.h"
#include "state/adamw.h"
#include "state/schedule.h"

namespace tessera {

TrainingStep::TrainingStep(const TrainingProgram& training, const ParameterStore& store,
                           Runtime& runtime)
    : training_(training),
      store_(store),
      executor_(training.program, runtime),
      frame_(training.program),
      inputs_(training, runtime.pool(), frame_),
      threads_(runtime.threads()),
      expert_counts_(training.expert_counts.size()) {
  for (size_t i = 0; i < training.parameters.values().size(); ++i) {
    const Value value = training.parameters.values()[i];
    const ParameterState& state = store.parameters()[i];
    frame_.bind(value, state.weight);
    if (const Value gradient = training.program.main_gradient(value)) {
      frame_.bind(gradient, state.gradient);
    }
  }
}

StepLosses TrainingStep::run(std::span<const Batch> micro_batches) {
  {
    const Trace::Span span(trace_, "zero_gradients", "optimizer", gradient_bytes(store_));
    store_.zero_gradients(threads_);
  }
  StepLosses losses;
  for (const Batch& batch : micro_batches) {
    losses.targets += batch.target_count;
    losses.tokens += batch.rows * batch.context;
  }
  for (auto& counts : expert_counts_) counts.clear();
  inputs_.set_seeds(losses.targets, losses.tokens);
  for (const Batch& batch : micro_batches) {
    fill(batch);
    executor_.run(frame_);
    add_losses(losses);
  }
  losses.cross_entropy /= static_cast<double>(std::max<int64_t>(losses.targets, 1));
  losses.balance /= static_cast<double>(losses.tokens);
  losses.router_z /= static_cast<double>(losses.tokens);
  for (const auto& counts : expert_counts_) {
    int64_t total = 0;
    for (const int64_t count : counts) total += count;
    const double balanced = static_cast<double>(total) / static_cast<double>(counts.size());
    losses.expert_load = std::max(
        losses.expert_load, static_cast<double>(*std::ranges::max_element(counts)) / balanced);
  }
  const Trace::Span span(trace_, "gradient_norm", "optimizer", gradient_bytes(store_));
  losses.gradient_norm = gradient_norm(store_, threads_);
  return losses;
}

void TrainingStep::fill(const Batch& batch) const {
  const Trace::Span span(trace_, "copy_batch", "data");
  inputs_.fill(batch);
}

void TrainingStep::add_losses(StepLosses& losses) {
  const Trace::Span span(trace_, "read_losses", block_name(Block::loss));
  losses.cross_entropy += sum(frame_[training_.token_loss]);
  if (training_.balance_loss) losses.balance += sum(frame_[training_.balance_loss]);
  if (training_.router_z_loss) losses.router_z += sum(frame_[training_.router_z_loss]);
  for (size_t layer = 0; layer < expert_counts_.size(); ++layer) {
    const auto counts = frame_[training_.expert_counts[layer]].values<int32_t>();
    expert_counts_[layer].resize(counts.size());
    for (size_t expert = 0; expert < counts.size(); ++expert) {
      expert_counts_[layer][expert] += counts[expert];
    }
  }
}

void TrainingStep::report_non_finite(std::span<const Batch> micro_batches) {
  executor_.set_check_finite(true);
  for (const Batch& batch : micro_batches) {
    inputs_.fill(batch);
    executor_.run(frame_);
  }
  executor_.set_check_finite(false);
  for (const ParameterState& state : store_.parameters()) {
    for (const auto& [what, tensor] :
         {std::pair("weight", &state.weight), std::pair("gradient", &state.gradient)}) {
      const int64_t at = first_non_finite(*tensor);
      if (at >= 0) {
        throw Error("the {} of {} is not finite at element {}", what, state.spec.name, at);
      }
    }
  }
  throw Error("the loss or the gradient's norm overflowed although every value is finite");
}

double TrainingStep::update_weights(const OptimizerConfig& config, const WeightUpdate& update) {
  const Trace::Span span(trace_, "adamw", "optimizer", adamw_bytes(store_));
  const double rate = learning_rate(config, update.step, update.steps);
  adamw_step(store_, config,
             {.step = update.step,
              .learning_rate = rate,
              .gradient_scale = clip_factor(config, update.gradient_norm, update.step)},
             threads_);
  return rate;
}

}  // namespace tessera
