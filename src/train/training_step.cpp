// One optimizer step, in this order:
//
// 1. begin() writes the seeds, which are the gradients of the losses, and runs the program `start`:
//    it sets main gradients and sums to zero.
// 2. forward_backward() goes through the list of this rank's stage: forward and backward passes of
//    its chunks, micro-batch by micro-batch, with the messages between the stages. Before a forward
//    pass prepare() fills the program's inputs with the micro-batch. One stage with one chunk runs
//    forward and backward of each micro-batch in turn, unless micro-batches take turns.
// 3. update() writes the learning rate, the clip norm and the number of the step, and runs the
//    program `update`.
// 4. results() reads the losses, the norm of the gradients and the experts' tokens.
//
// The forward passes add their losses to sums, which are states of f64. The update adds these up
// over the ranks. results() reads the totals, and wait() divides them by targets or tokens.
//
// A *set* is the passes of a phase (see Passes).

#include "train/training_step.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/words.h"
#include "state/schedule.h"

namespace tessera {

TrainingStep::TrainingStep(const StepPrograms& programs, Executor& executor,
                           const ParameterStore& store, int set)
    : programs_(programs), set_(set), executor_(executor), store_(store), runner_(executor) {
  const int64_t vocabulary_size = vocabulary_size_of(programs.model.parameters);
  for (const Chunk& chunk : chunks()) {
    inputs_.push_back({.values = chunk.batch, .vocabulary_size = vocabulary_size});
  }
}

void TrainingStep::begin(std::span<const Batch> micro_batches) {
  targets_ = 0;
  tokens_ = 0;
  for (const Batch& batch : micro_batches) {
    targets_ += batch.target_count;
    tokens_ += batch.parts * batch.rows * batch.context;
  }
  // The chunks share these states.
  const Chunk& chunk = chunks().front();
  const int program = programs_.chunk_number(set_);
  write_scalar(executor_, executor_.tensor(chunk.target_seed, program),
               1.0 / static_cast<double>(std::max<int64_t>(targets_, 1)));
  write_scalar(executor_, executor_.tensor(chunk.token_seed, program),
               1.0 / static_cast<double>(tokens_));
  executor_.run(programs_.start_action());
}

void TrainingStep::forward_backward(std::span<const Batch> parts, std::span<const Batch> wholes) {
  const int count = static_cast<int>(parts.size());
  if (list_.micro_batches != count || list_overlaps_ != overlaps_) {
    list_ = programs_.step_list(set_, count, overlaps_);
    list_overlaps_ = overlaps_;
  }
  begin(wholes);
  runner_.run(list_, [&](const StageAction& action) {
    if (action.action.kind == ActionKind::forward) {
      prepare(action, parts[static_cast<size_t>(action.action.micro_batch)]);
    }
    if (before_action_) before_action_(action);
  });
  micro_batches_ += count;
}

void TrainingStep::prepare(const StageAction& action, const Batch& batch) {
  const int program = action.run.program;
  const auto chunk = static_cast<size_t>(program - programs_.chunk_number(set_));
  {
    // On a device, its own clock times the copies: see Executor::write().
    const Trace::Span span(executor_.on_host() ? trace_ : nullptr, "copy_batch", "data");
    inputs_[chunk].fill(executor_, program, action.run.micro_batch, batch);
  }
  if (const Value step = chunks()[chunk].balance_step) {
    write_scalar(executor_, executor_.tensor(step, program, action.run.micro_batch),
                 static_cast<double>(micro_batches_ + action.action.micro_batch + 1));
  }
  if (inputs_written_) {
    inputs_written_({.program = program,
                     .frame = action.run.micro_batch,
                     .micro_batch = action.action.micro_batch,
                     .chunk = chunk});
  }
}

double TrainingStep::update(const OptimizerConfig& config, const WeightUpdate& update) {
  const int64_t course_step = update.step - update.course_begin;
  const double rate = learning_rate(config, course_step, update.steps);
  const int number = programs_.update_number();
  const UpdateProgram& program = programs_.update;
  write_scalar(executor_, executor_.tensor(program.learning_rate, number), rate);
  write_scalar(executor_, executor_.tensor(program.clip_norm, number),
               clip_norm(config, course_step));
  write_scalar(executor_, executor_.tensor(program.step, number), static_cast<double>(update.step));
  if (inputs_written_) inputs_written_({.program = number});
  executor_.run(programs_.update_action(list_));
  return rate;
}

PendingResults TrainingStep::results() {
  const ModelOutline& model = programs_.model;
  std::vector<Tensor> tensors;
  const auto add = [&](const Tensor& tensor) {
    tensors.push_back(tensor);
    return static_cast<int>(tensors.size()) - 1;
  };
  const int number = programs_.update_number();
  const auto add_total = [&](const std::optional<StepSum>& sum) {
    return sum ? add(store_.total(*sum)) : -1;
  };
  PendingResults results;
  results.targets_ = targets_;
  results.tokens_ = tokens_;
  results.indices_ = {
      .cross_entropy = add_total(model.sums.cross_entropy),
      .balance = add_total(model.sums.balance),
      .router_z = add_total(model.sums.router_z),
      .gradient_norm = add(executor_.tensor(programs_.update.gradient_norm, number)),
      .scale = add(executor_.tensor(programs_.update.scale, number)),
      .experts = model.experts,
  };
  if (const std::optional<Value>& measures = programs_.update.muon_measures) {
    results.indices_.muon_measures = add(executor_.tensor(*measures, number));
  }
  results.indices_.first_layer = static_cast<int>(tensors.size());
  for (const StepSum& layer : model.sums.expert_tokens) add(store_.total(layer));
  results.snapshot_ = executor_.read(tensors);
  return results;
}

double PendingResults::scalar(int index) const {
  return index < 0 ? 0.0 : read_numbers(snapshot_.tensors[static_cast<size_t>(index)])[0];
}

double PendingResults::expert_load() const {
  double load = 0;
  for (auto layer = static_cast<size_t>(indices_.first_layer); layer < snapshot_.tensors.size();
       ++layer) {
    const std::vector<double> counts = read_numbers(snapshot_.tensors[layer]);
    const std::span expert_counts = std::span(counts).first(static_cast<size_t>(indices_.experts));
    double total = 0;
    for (const double count : expert_counts) total += count;
    if (total == 0) continue;  // every token skipped the experts
    load = std::max(load, *std::ranges::max_element(expert_counts) /
                              (total / static_cast<double>(expert_counts.size())));
  }
  return load;
}

std::optional<double> PendingResults::skipped() const {
  double skipped = 0, total = 0;
  bool has_skip_class = false;
  for (auto layer = static_cast<size_t>(indices_.first_layer); layer < snapshot_.tensors.size();
       ++layer) {
    const std::vector<double> counts = read_numbers(snapshot_.tensors[layer]);
    for (size_t i = 0; i < counts.size(); ++i) {
      total += counts[i];
      if (i < static_cast<size_t>(indices_.experts)) continue;
      skipped += counts[i];
      has_skip_class = true;
    }
  }
  if (!has_skip_class) return std::nullopt;
  return skipped / std::max(total, 1.0);
}

std::optional<MuonMeasures> PendingResults::muon_measures() const {
  if (indices_.muon_measures < 0) return {};
  const std::vector<double> sums =
      read_numbers(snapshot_.tensors[static_cast<size_t>(indices_.muon_measures)]);
  return MuonMeasures{sums[0], sums[1], sums[2], sums[3]};
}

StepResults PendingResults::wait() const {
  snapshot_.wait();
  const std::optional<MuonMeasures> muon = muon_measures();
  const auto tokens = static_cast<double>(tokens_);
  return {.cross_entropy =
              scalar(indices_.cross_entropy) / static_cast<double>(std::max<int64_t>(targets_, 1)),
          .balance = scalar(indices_.balance) / tokens,
          .router_z = scalar(indices_.router_z) / tokens,
          .targets = targets_,
          .tokens = tokens_,
          .expert_load = expert_load(),
          .skipped = skipped(),
          .gradient_norm = scalar(indices_.gradient_norm),
          .updated = !std::isnan(scalar(indices_.scale)),
          .update_rms = muon ? std::optional(muon->rms()) : std::nullopt,
          .orthogonality_error = muon ? std::optional(muon->deviation()) : std::nullopt};
}

/// Returns a text about the first parameter that is not finite, and adds its index to `order`;
/// none if all are finite.
std::optional<std::string> TrainingStep::non_finite_parameter(int64_t& order) const {
  for (const KeptTensor* tensor : store_.tensors({Kept::weight, Kept::gradient})) {
    const int64_t element = first_non_finite(tensor->memory);
    if (element < 0) continue;
    order += static_cast<int64_t>(tensor->index);
    return fmt::format("the {} of {} is not finite at element {}", word(tensor->kind),
                       tensor->parameter->name, element);
  }
  return {};
}

std::string TrainingStep::find_non_finite(std::span<const Batch> micro_batches,
                                          const RankControl& control) {
  // The position of what the rank found, in an order of all stages: an action of the model comes
  // after all actions that it depends on. Parameters come after all actions.
  constexpr int64_t kNodes = int64_t{1} << 32;  // more than any action has
  const int chunk_count = programs_.sets[static_cast<size_t>(set_)].placement.chunks();
  const int64_t actions_of_micro_batch = int64_t{3} * chunk_count;
  FiniteCheck check;
  int64_t action_order = 0;
  int64_t order = actions_of_micro_batch * std::ssize(micro_batches) * kNodes;
  std::optional<std::string> own;
  // Keeps what the last action found, if it comes before what was found so far.
  const auto end_action = [&] {
    const int64_t found = action_order * kNodes + check.nodes;
    if (check.message && found < order) {
      order = found;
      own = check.message;
    }
    check = {};
  };
  before_action_ = [&](const StageAction& next) {
    end_action();
    const auto& [kind, chunk, micro_batch] = next.action;
    const int backward = 2 * chunk_count - 1 - chunk;
    const int in_passes = kind == ActionKind::forward            ? chunk
                          : kind == ActionKind::weight_gradients ? backward + chunk_count
                                                                 : backward;
    action_order = actions_of_micro_batch * micro_batch + in_passes;
  };
  executor_.give_up_frames();  // a device may have begun the sums of the next step
  executor_.set_finite_check(&check);
  // A sum over the ranks would spread what is not finite to all of them.
  const bool overlaps = std::exchange(overlaps_, false);
  // Starts from zero gradients: a device may have added those of the next step.
  forward_backward(micro_batches);
  overlaps_ = overlaps;
  executor_.set_finite_check(nullptr);
  before_action_ = {};
  end_action();
  if (!own) own = non_finite_parameter(order);
  if (own && control.several()) own = fmt::format("on {}, {}", control.text(control.rank()), *own);
  return control.lowest_text(order, own)
      .value_or("the loss or the gradient's norm overflowed although every value is finite");
}

}  // namespace tessera
