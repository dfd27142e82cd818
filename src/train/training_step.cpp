#include "train/training_step.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "state/schedule.h"

namespace tessera {

TrainingStep::TrainingStep(const StepPrograms& programs, Executor& executor,
                           const ParameterStore& store)
    : programs_(programs),
      chunk_(programs.chunks.front()),
      executor_(executor),
      store_(store),
      inputs_(chunk_.batch, chunk_.parameters) {}

void TrainingStep::accumulate(std::span<const Batch> micro_batches) {
  targets_ = 0;
  tokens_ = 0;
  for (const Batch& batch : micro_batches) {
    targets_ += batch.target_count;
    tokens_ += batch.rows * batch.context;
  }
  set_scalar(executor_.tensor(chunk_.target_seed),
             1.0 / static_cast<double>(std::max<int64_t>(targets_, 1)));
  set_scalar(executor_.tensor(chunk_.token_seed), 1.0 / static_cast<double>(tokens_));
  executor_.run({.segment = Segment::whole, .program = programs_.start_number()});
  run(micro_batches);
}

void TrainingStep::run(std::span<const Batch> micro_batches) {
  for (const Batch& batch : micro_batches) {
    {
      const Trace::Span span(trace_, "copy_batch", "data");
      inputs_.fill(executor_, 0, 0, batch);
    }
    executor_.run({.segment = Segment::forward});
    executor_.run({.segment = Segment::backward});
  }
}

double TrainingStep::update(const OptimizerConfig& config, const WeightUpdate& update) {
  const double rate = learning_rate(config, update.step, update.steps);
  const int number = programs_.update_number();
  const UpdateProgram& program = programs_.update;
  set_scalar(executor_.tensor(program.learning_rate, number), rate);
  set_scalar(executor_.tensor(program.clip_norm, number), clip_norm(config, update.step));
  set_scalar(executor_.tensor(program.step, number), static_cast<double>(update.step));
  executor_.run({.segment = Segment::whole, .program = number});
  return rate;
}

bool TrainingStep::updated() const {
  const Tensor& scale = executor_.tensor(programs_.update.scale, programs_.update_number());
  return !std::isnan(read_numbers(scale)[0]);
}

double TrainingStep::gradient_norm() const {
  return read_numbers(
      executor_.tensor(programs_.update.gradient_norm, programs_.update_number()))[0];
}

double TrainingStep::sum(const std::optional<StepSum>& sum) const {
  return sum ? read_numbers(executor_.tensor(sum->name))[0] : 0.0;
}

double TrainingStep::expert_load() const {
  double load = 0;
  for (const StepSum& layer : chunk_.expert_tokens) {
    const std::vector<double> counts = read_numbers(executor_.tensor(layer.name));
    double total = 0;
    for (const double count : counts) total += count;
    load = std::max(
        load, *std::ranges::max_element(counts) / (total / static_cast<double>(counts.size())));
  }
  return load;
}

StepLosses TrainingStep::losses() const {
  const auto tokens = static_cast<double>(tokens_);
  return {.cross_entropy =
              sum(chunk_.cross_entropy_sum) / static_cast<double>(std::max<int64_t>(targets_, 1)),
          .balance = sum(chunk_.balance_sum) / tokens,
          .router_z = sum(chunk_.router_z_sum) / tokens,
          .targets = targets_,
          .tokens = tokens_,
          .expert_load = expert_load()};
}

void TrainingStep::report_non_finite(std::span<const Batch> micro_batches) {
  executor_.set_check_finite(true);
  run(micro_batches);
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

}  // namespace tessera
