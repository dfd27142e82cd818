#include "train/rank_trainer.h"

#include <cmath>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/text.h"
#include "pipeline/agree_on_lists.h"
#include "pipeline/gather_traces.h"
#include "train/initial_weights.h"
#include "train/save_state.h"
#include "train/source_metrics.h"
#include "train/trace_step.h"

// The loop of one rank: issue a step, finish it at once or leave it in flight, agree with the other
// ranks whether the run ends, and save where a checkpoint is due. On the first rank `keeper_` does
// what is done once for all. `control_` has the calls that all ranks make together: together() runs
// an action on every rank, on_first() on the first alone, and an error on one is thrown on all.
//
// save() checks the weights, writes the metrics through to the disk, and calls save_training(), in
// which each rank writes its share of the tensors and the first rank completes the checkpoint. Then
// the first rank removes old checkpoints.

namespace tessera {

RankTrainer::RankTrainer(const SharedRun& run, StepPlan plan, SharedCores cores, Runtime& runtime,
                         const RankControl& control, RunKeeper* keeper, const Logger& logger)
    : run_(run),
      config_(run.config),
      runtime_(runtime),
      control_(control),
      keeper_(keeper),
      logger_(logger),
      rank_(plan.mesh_rank().rank),
      team_(config_.run.bind_threads ? runtime.threads() : 0, cores.index, cores.ranks),
      programs_(std::move(plan.programs)),
      executor_(programs_.list(), std::move(plan.memory), runtime_),
      store_(store_of(programs_, executor_)),
      data_(run.data),
      loader_(data_, run.phases, {run.mesh, rank_}) {
  executor_.set_graphs(config_.run.graphs);
  if (config_.run.check_replicas > 0 && control_.several()) {
    replicas_.emplace(executor_, static_cast<int>(programs_.list().size()), store_, control_);
  }
}

/// Uses the programs of the current phase. All phases have the same weights, states and sums.
void RankTrainer::use_programs() {
  const int set = programs_.set_of_phase[loader_.phase()];
  step_.emplace(programs_, executor_, store_, set);
  const auto& evaluation = programs_.sets[static_cast<size_t>(set)].evaluation;
  if (evaluation) evaluator_.emplace(*evaluation, programs_.evaluation_number(set), executor_);
}

/// Enters the phase of a step, if the step begins one. The step before must be finished. position_
/// stays at the end of the step before: if the new phase fails at once, that position is saved.
void RankTrainer::enter_phase_of(int64_t step) {
  const size_t next = phase_at(run_.phases, step);
  if (next == loader_.phase()) return;
  TESSERA_CHECK(!issued_, "step {} begins a phase while the one before is not finished", step);
  while (loader_.phase() < next) loader_.enter(loader_.phase() + 1);
  use_programs();
  if (keeper_ != nullptr) keeper_->console().announce_phase(phase(), run_.phases.size());
}

TrainReport RankTrainer::run(const TrainOptions& options) {
  start(options.resume);
  if (position_.step >= run_.last_step()) {
    return keeper_ != nullptr ? keeper_->nothing_to_do(position_)
                              : TrainReport{.step = position_.step};
  }
  require_savable(checkpoints_directory(config_), control_);
  if (keeper_ != nullptr) keeper_->begin(programs_, position_);
  on_batches_ = options.on_batches;
  before_evaluation_batch_ = options.before_evaluation_batch;
  TrainReport report{.step = position_.step};
  bool end = false;
  while (!end) {
    const int64_t step = position_.step + (issued_ ? 2 : 1);
    if (options.before_step) options.before_step(rank_, step);
    enter_phase_of(step);
    step == config_.run.trace_step ? traced_step(step) : issue(step, nullptr);
    const bool finishes = finishes_at_once(step);
    if (!finishes) agree(report);
    if (finishes || report.interrupted || ending_) {
      if (issued_) finish_step();
      agree(report);
    }
    end = position_.step == run_.last_step() || report.interrupted || ending_;
    if (end || (!issued_ && saves_after(position_.step))) save();
    if (!end && saved_step_ == position_.step) {  // a signal may have come in the save
      agree(report);
      end = report.interrupted || ending_;
    }
  }
  report.loss = loss_;
  report.step = position_.step;
  if (keeper_ != nullptr) {
    keeper_->console().finish(report,
                              source_metrics(data_.all_sources(loader_.phase()), position_.data));
  }
  return report;
}

void RankTrainer::start(bool resume) {
  agree_on_lists(control_, executor_, programs_.actions(), programs_.stage_lists());
  if (resume) {
    position_ = load_training(config_, store_, data_, logger_,
                              {runtime_, control_.during("the load of a checkpoint")});
    loader_.seek(phase_at(run_.phases, position_.step), position_.data);
  } else {
    if (config_.checkpoint.initial.empty()) {
      store_.initialize(config_.train.seed, runtime_.threads());
    } else {
      load_initial_weights(config_, store_, logger_,
                           {runtime_, control_.during("the load of initial weights")});
    }
    position_.data = loader_.state();
    if (keeper_ != nullptr) {
      position_.carried = initial_files(config_, data_.tokenizer(), logger_);
    }
  }
  saved_step_ = position_.step;
  if (replicas_) require_equal_copies(position_.step);
  if (keeper_ != nullptr) keeper_->write_config(config_);
  use_programs();
}

bool RankTrainer::saves_after(int64_t step) const {
  return config_.checkpoint.every > 0 && step % config_.checkpoint.every == 0;
}

bool RankTrainer::evaluates_after(int64_t step) const {
  const int64_t every = config_.train.evaluate_every;
  return every > 0 && (step % every == 0 || step == config_.train.steps);
}

bool RankTrainer::checks_replicas_at(int64_t step) const {
  return replicas_ && step % config_.run.check_replicas == 0;
}

/// Returns whether a step is finished before the next one is issued. On a device its results are
/// read while the device works on the next step, unless something needs the state after this one.
bool RankTrainer::finishes_at_once(int64_t step) const {
  return runtime_.accelerator() == nullptr || step == run_.last_step() ||
         step == phase().last_step || saves_after(step) || evaluates_after(step) ||
         checks_replicas_at(step) || step + 1 == config_.run.trace_step;
}

/// Gives a step's work to the executor: data, forward and backward passes, optimizer. The step
/// before is finished after the passes were issued, so that the device has work. It is finished
/// before the update, so that weights change only if that step was good.
void RankTrainer::issue(int64_t step, Trace* trace) {
  if (!issued_) stopwatch_ = Stopwatch();
  const Trace::Step traced(trace, step);
  IssuedStep next{.metrics = {.step = step}, .batches = next_batches(trace)};
  next.data = loader_.state();
  if (on_batches_) on_batches_(rank_, step, next.batches);
  if (checks_replicas_at(step)) {
    const auto unequal = unequal_copies(step, [&] { replicas_->check_batches(next.batches); });
    if (unequal) throw Error("{}", *unequal);
  }
  step_->set_trace(trace);
  step_->set_micro_batches(position_.micro_batches + (issued_ ? std::ssize(issued_->batches) : 0));
  watch_inputs(step);
  forward_backward(next.batches);
  if (issued_) finish_step();
  next.metrics.lr = step_->update(
      phase().config.optimizer,
      {.step = step, .steps = phase().config.train.steps, .course_begin = phase().course_begin});
  next.results = step_->results();
  issued_ = std::move(next);
  if (trace == nullptr) return;
  issued_->results.wait();
  executor_.synchronize();  // a traced step has whole events, those of its gathers too
}

/// Makes a step compare the ranks' copies of its inputs, if replicas are checked at this step.
void RankTrainer::watch_inputs(int64_t step) {
  if (!checks_replicas_at(step)) return step_->on_inputs({});
  step_->on_inputs([this, step](const TrainingStep::BegunRun& run) {
    unequal_ = unequal_copies(step, [&] { replicas_->check_inputs(run.program, run.frame); });
    if (unequal_) throw Error("{}", *unequal_);
  });
}

/// Runs the passes of a step. If one of several ranks fails in them, for example because its
/// experts get more rows than are reserved, the run saves the state before the step and ends. If
/// copies of an input differ, it ends and saves nothing.
void RankTrainer::forward_backward(std::span<const Batch> batches) {
  if (!control_.several()) return step_->forward_backward(batches);
  const auto failure = attempt_work([&] { step_->forward_backward(batches); });
  if (failure) unequal_ = control_.any_text(unequal_);
  if (unequal_) throw Error("{}", *unequal_);
  if (failure) end_before_step(*failure);
}

/// Runs an action as RankControl::attempt_work() does. If it fails on a rank, the lanes of others
/// may be at work beside it: they are abandoned on all ranks, so that the state can be saved.
std::optional<std::string> RankTrainer::attempt_work(const std::function<void()>& action) {
  std::optional<std::string> failure = control_.attempt_work(action);
  if (failure) executor_.abandon_work();
  return failure;
}

/// Ends the run before a step that cannot be computed, after saving the state before it.
void RankTrainer::end_before_step(const std::string& failure) {
  if (issued_) finish_step();
  if (position_.step == saved_step_) throw Error("{} ({})", failure, resume_advice());
  ending_ = failure;
  save();  // throws, because ending_ is set
  throw InternalError("a run went on after its end");
}

/// Waits for the issued step and reports it.
void RankTrainer::finish_step() {
  IssuedStep step = std::move(*issued_);
  issued_.reset();
  const StepResults results = step.results.wait();
  StepMetrics& metrics = step.metrics;
  metrics.loss = loss_ = results.cross_entropy;
  metrics.grad_norm = results.gradient_norm;
  if (!results.updated) report_non_finite(metrics, step.batches);
  position_.step = metrics.step;
  position_.tokens += results.tokens;
  position_.micro_batches += std::ssize(step.batches);
  announce_repetition(position_.data, step.data);
  position_.data = std::move(step.data);
  if (checks_replicas_at(metrics.step)) require_equal_copies(metrics.step);
  metrics.seconds = stopwatch_.seconds();
  stopwatch_ = Stopwatch();
  report(metrics, results);
}

/// Makes all ranks decide together whether the run ends, so that all finish the same steps. A
/// signal may have reached any of them, and only the first writes the records.
void RankTrainer::agree(TrainReport& report) {
  report.interrupted = control_.any(InterruptGuard::requested());
  ending_ = control_.any_text(ending_);
}

std::vector<Batch> RankTrainer::next_batches(Trace* trace) {
  const Trace::Span span(trace, "next_batches", "data");
  std::vector<Batch> batches;
  const std::optional<std::string> failure =
      control_.attempt([&] { batches = loader_.next_step(); });
  if (failure) end_before_step(*failure);
  return batches;
}

/// Runs a step with a trace on all ranks. The first one writes them into one file.
void RankTrainer::traced_step(int64_t step) {
  const RankControl tracing = control_.during(fmt::format("the trace of step {}", step));
  const RankClock clock = monotonic_clock();
  const ClockOffset before = measure_clock_offset(tracing, clock);
  Trace trace(runtime_, clock.seconds);
  issue(step, &trace);
  step_->set_trace(nullptr);
  const ClockOffset after = measure_clock_offset(tracing, clock);
  const int set = programs_.set_of_phase[loader_.phase()];
  const PipelineSchedule schedule =
      programs_.step_schedule(set, static_cast<int>(std::ssize(issued_->batches)));
  finish_step();
  const GatheredTraces gathered = gather_traces(
      {.trace = rank_trace(
           trace.step(), step_->take_timed(),
           {run_.config, run_.peak_flops / run_.mesh.ranks(), run_.phase_of(step).tokens_of_step()},
           programs_, set, runtime_),
       .begin = trace.begin(),
       .before = before,
       .after = after},
      {.name = schedule.name, .micro_batches = schedule.micro_batches}, tracing);
  if (keeper_ != nullptr) keeper_->write_trace(gathered, step);
}

/// Completes the step's metrics, writes them and shows them.
void RankTrainer::report(StepMetrics& metrics, const StepResults& results) {
  metrics.tokens = position_.tokens;
  if (results.expert_load > 0) {
    metrics.balance_loss = results.balance;
    metrics.router_z_loss = results.router_z;
    metrics.expert_load = results.expert_load;
    metrics.skipped = results.skipped;
  }
  metrics.update_rms = results.update_rms;
  metrics.orthogonality_error = results.orthogonality_error;
  if (keeper_ != nullptr) keeper_->complete(metrics, results.tokens);
  if (!config_.train.phases.empty()) {
    metrics.phase = phase().number;
    metrics.phase_name = phase().name;
  }
  if (const TrainingData& all = data_.all_sources(loader_.phase()); all.sources.size() > 1) {
    metrics.sources = source_metrics(all, position_.data);
  }
  evaluate(metrics);
  if (keeper_ == nullptr) return;
  end_run_on_failure([&] { keeper_->append(metrics); });
  keeper_->show(metrics);
}

/// Logs once that a source repeats, because data seen again teaches less than new data.
void RankTrainer::announce_repetition(const LoaderState& before, const LoaderState& now) {
  if (keeper_ == nullptr) return;
  for (size_t i = 0; i < now.sources.size(); ++i) {
    if (before.sources[i].epoch > 0 || now.sources[i].epoch == 0) continue;
    const DataSource& source = data_.all_sources(loader_.phase()).sources[i];
    const int64_t tokens = source.instances->instances(Split::train) * source.instances->context();
    keeper_->console().info("{}: all {} tokens were trained on once; from here on they repeat",
                            source.name, format_count(static_cast<double>(tokens)));
  }
}

/// Returns the advice for a run that ends by an error, once its cause is removed.
std::string RankTrainer::resume_advice() const {
  if (saved_step_ == 0) return "start again without --resume: no checkpoint was saved yet";
  return fmt::format("go on from step {} with --resume", saved_step_);
}

/// Ends the run after a step that is not finite and therefore has not changed the weights.
void RankTrainer::report_non_finite(const StepMetrics& metrics, std::span<const Batch> batches) {
  if (keeper_ != nullptr) keeper_->console().clear();
  step_->set_micro_batches(position_.micro_batches);  // the step is computed once more
  throw Error(
      "step {}: loss {}, gradient norm {}: {}. Nothing of this step was kept; lower "
      "optimizer.learning_rate, or look at the data, and {}",
      metrics.step, metrics.loss, metrics.grad_norm, step_->find_non_finite(batches, control_),
      resume_advice());
}

void RankTrainer::evaluate(StepMetrics& metrics) {
  if (!evaluates_after(metrics.step)) return;
  std::optional<SourcesEvaluation> evaluation;
  const auto attempt = [&](auto&& action) {
    const std::optional<std::string> failure = attempt_work(action);
    if (!failure) return true;
    ending_ = fmt::format("{}; the held-out loss of step {} is lost", *failure, metrics.step);
    return false;
  };
  const bool begun = attempt([&] {
    evaluation.emplace(*evaluator_, loader_.drawn_sources(), loader_.rows(),
                       config_.train.evaluate_batches * phase().config.train.micro_batch);
  });
  if (!begun) return;
  for (int64_t batch = 0; !evaluation->done(); ++batch) {
    if (before_evaluation_batch_) before_evaluation_batch_(rank_, batch);
    if (control_.any(InterruptGuard::requested())) {
      logger_.warn(
          "a signal ended the evaluation of step {}, which has no held-out loss in metrics.jsonl: "
          "tessera eval --checkpoint {} computes it once the step is saved",
          metrics.step, config_.run.directory);
      return;
    }
    if (!attempt([&] { evaluation->next(); })) return;
  }
  add_held_out(metrics, evaluation->results());
  if (!std::isfinite(*metrics.held_out_loss)) {
    throw Error(
        "step {}: the held-out loss is {}: the update of this step went out of range; "
        "lower optimizer.learning_rate and {}",
        metrics.step, *metrics.held_out_loss, resume_advice());
  }
}

/// Returns the error if copies of a value differ between ranks, the same on all of them.
template <typename Check>
std::optional<std::string> RankTrainer::unequal_copies(int64_t step, Check&& check) const {
  try {
    check();
  } catch (const Error& error) {
    return fmt::format(
        "step {}: {}. A rank's memory or processor may be faulty, or a collective has lost "
        "something: look which ranks stand alone, test their machine, and {}",
        step, error.what(), resume_advice());
  }
  return std::nullopt;
}

/// Ends the run if copies of values that are kept between steps differ.
void RankTrainer::require_equal_copies(int64_t step) const {
  const auto unequal = unequal_copies(step, [&] { replicas_->check_kept(); });
  if (unequal) throw Error("{}", *unequal);
}

void RankTrainer::require_finite_weights() const {
  control_.together([&] {
    for (const KeptTensor* master : store_.tensors({Kept::master})) {
      if (first_non_finite(master->memory) < 0) continue;
      throw Error(
          "after step {} the weight {} is not finite: the update went out of range; it "
          "was not saved; lower optimizer.learning_rate and {}",
          position_.step, master->parameter->name, resume_advice());
    }
  });
}

void RankTrainer::save() {
  TESSERA_CHECK(!issued_, "step {} is saved while the next one is computed", position_.step);
  if (keeper_ != nullptr) keeper_->console().clear();
  require_finite_weights();
  const RankControl saving = control_.during(fmt::format("the save of step {}", position_.step));
  saving.on_first([&] {
    if (keeper_ != nullptr) keeper_->require_folder();
  });
  // The files beside a checkpoint on the disk must reach its step. Lines that cannot be written
  // there are saved in the checkpoint, and a resumed run writes them.
  if (keeper_ != nullptr) {
    end_run_on_failure([&] { keeper_->sync(); });
    position_.unsaved_metrics = keeper_->unsaved_metrics();
  }
  try {
    save_training(config_, store_, position_, data_, {runtime_, saving});
  } catch (const Error& error) {
    if (!ending_) throw;
    throw Error("{}; and step {} could not be saved: {}", *ending_, position_.step, error.what());
  }
  store_.forget_errors();
  saved_step_ = position_.step;
  if (keeper_ != nullptr)
    keeper_->prune_and_plot(programs_.model.parameters.elements(), position_.tokens);
  saving.wait();  // the first rank may have much to remove
  if (ending_) {
    throw Error("{} (step {} was saved: go on from it with --resume once that is mended)", *ending_,
                position_.step);
  }
}

}  // namespace tessera
