#include "train/trainer.h"

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/affinity.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/progress.h"
#include "config/load_config.h"
#include "config/resolve.h"
#include "data/loader.h"
#include "engine/count_flops.h"
#include "engine/require_runnable.h"
#include "hardware/device_rate.h"
#include "hardware/gemm_rate.h"
#include "inference/evaluate.h"
#include "plan/product_peak.h"
#include "plan/programs.h"
#include "plan/run_target.h"
#include "plan/step_plan.h"
#include "plan/tuned_products.h"
#include "train/initial_weights.h"
#include "train/run_console.h"
#include "train/run_lock.h"
#include "train/run_records.h"
#include "train/source_metrics.h"
#include "train/training_state.h"
#include "train/training_step.h"

namespace tessera {
namespace {

class Trainer {
 public:
  /// `plan` is the plan of the configuration. `peak_flops` is the known rate of matrix products, or
  /// 0. Refers to the runtime, the options and the logger.
  Trainer(RunConfig config, StepPlan plan, Runtime& runtime, double peak_flops,
          const TrainOptions& options, const Logger& logger)
      : config_(std::move(config)),
        options_(options),
        logger_(logger),
        console_(config_, options, logger),
        runtime_(runtime),
        records_(config_, runtime, logger),
        peak_flops_(prepare_products(peak_flops)),
        team_(config_.run.bind_threads ? runtime_.threads() : 1),
        programs_(std::move(plan.programs)),
        executor_(programs_.list(), std::move(plan.memory), runtime_),
        store_(executor_, programs_.update_number(), programs_.rounding_number(),
               chunk().parameters),
        step_(programs_, executor_, store_),
        data_(open_data(config_.data)),
        loader_(data_, {.rows = config_.train.micro_batch,
                        .vocabulary_size = config_.model.vocabulary_size}) {
    executor_.set_graphs(config_.run.graphs);
  }

  /// `lock` must be held on the run's folder.
  TrainReport run(RunLock& lock) {
    start();
    lock.keep_folder();
    if (position_.step >= last_step()) return nothing_to_do();
    records_.open(position_.step);
    announce();
    TrainReport report{.step = position_.step};
    bool end = false;
    while (!end) {
      const int64_t step = position_.step + (issued_ ? 2 : 1);
      step == config_.run.trace_step ? traced_step(step) : issue(step, nullptr);
      report.interrupted = InterruptGuard::requested();
      if (issued_ && (report.interrupted || ending_ || settles_at_once(step))) settle();
      end = position_.step == last_step() || report.interrupted || ending_;
      if (end || (!issued_ && saves_after(position_.step))) save();
    }
    report.loss = loss_;
    report.step = position_.step;
    console_.finish(report, contributions());
    return report;
  }

 private:
  /// A step whose work was given to the executor.
  struct IssuedStep {
    StepMetrics metrics;  // only its number and learning rate yet
    std::vector<Batch> batches;
    LoaderState data;  // after its batches
    PendingResults results;
  };

  const Chunk& chunk() const { return programs_.chunks.front(); }

  /// Gives the device its table of products. Returns the rate of matrix products: `known`, or if
  /// that is 0 a device's, measured while its memory is free. The processor is measured when the
  /// run begins.
  double prepare_products(double known) {
    use_tuned_products(config_, runtime_);
    if (known > 0 || runtime_.accelerator() == nullptr) return known;
    return measure_gemm_peak(runtime_, compute_dtype(config_.train.precision));
  }

  /// The step after which this call of train() ends.
  int64_t last_step() const {
    return config_.train.stop_after > 0 ? config_.train.stop_after : config_.train.steps;
  }

  void start() {
    const fs::path directory = config_.run.directory;
    if (options_.resume) {
      position_ = load_training(config_, store_, data_, logger_);
      loader_.seek(position_.data);
    } else {
      start_weights();
      position_.data = loader_.state();
      position_.carried = initial_files(config_, data_.tokenizer, logger_);
    }
    saved_step_ = position_.step;
    write_file(directory / "config.toml", to_toml(config_));
    if (programs_.evaluation) {
      evaluator_.emplace(*programs_.evaluation, executor_, programs_.evaluation_number());
    }
  }

  void start_weights() {
    if (config_.checkpoint.initial.empty()) {
      store_.initialize(config_.train.seed, runtime_.threads());
    } else {
      load_initial_weights(config_, store_, logger_);
    }
  }

  TrainReport nothing_to_do() {
    console_.nothing_to_do(position_.step, last_step());
    return {.step = position_.step, .loss = records_.loss_of(position_.step)};
  }

  void announce() {
    if (peak_flops_ == 0) {
      peak_flops_ = measure_gemm_peak(runtime_.threads(), compute_dtype(config_.train.precision));
    }
    flops_ = count_flops(chunk().program).useful() *
             static_cast<double>(config_.train.global_batch / config_.train.micro_batch);
    console_.announce(chunk(), runtime_.target(), flops_, peak_flops_);
    if (position_.step > 0) console_.announce_position(position_.step, position_.tokens);
  }

  bool saves_after(int64_t step) const {
    return config_.checkpoint.every > 0 && step % config_.checkpoint.every == 0;
  }
  bool evaluates_after(int64_t step) const {
    const int64_t every = config_.train.evaluate_every;
    return every > 0 && (step % every == 0 || step == config_.train.steps);
  }

  /// Whether a step's results are read before the next step is issued. On a device they are read
  /// later, while it works on the next step, unless something needs the state after this one.
  bool settles_at_once(int64_t step) const {
    return runtime_.accelerator() == nullptr || step == last_step() || saves_after(step) ||
           evaluates_after(step) || step + 1 == config_.run.trace_step;
  }

  /// Gives a step's work to the executor: data, forward and backward passes, optimizer. The step
  /// before is settled first, but only after the device has the passes to work on; weights change
  /// only if that step was good.
  void issue(int64_t step, Trace* trace) {
    if (!issued_) watch_ = Stopwatch();
    const Trace::Step whole(trace, step);
    IssuedStep next{.metrics = {.step = step}, .batches = next_batches(trace)};
    next.data = loader_.state();
    step_.set_trace(trace);
    step_.accumulate(next.batches);
    if (issued_) settle();
    next.metrics.lr = step_.update(config_.optimizer, {.step = step, .steps = config_.train.steps});
    next.results = step_.results();
    issued_ = std::move(next);
    if (trace != nullptr) issued_->results.wait();
  }

  /// Waits for the issued step, and reports it.
  void settle() {
    IssuedStep step = std::move(*issued_);
    issued_.reset();
    const StepResults results = step.results.wait();
    StepMetrics& metrics = step.metrics;
    metrics.loss = loss_ = results.cross_entropy;
    metrics.grad_norm = results.gradient_norm;
    if (!results.updated) report_non_finite(metrics, step.batches);
    position_.step = metrics.step;
    position_.tokens += results.tokens;
    announce_repetition(position_.data, step.data);
    position_.data = std::move(step.data);
    metrics.seconds = watch_.seconds();
    watch_ = Stopwatch();
    report(metrics, results);
  }

  std::vector<Batch> next_batches(Trace* trace) {
    const Trace::Span span(trace, "next_batches", "data");
    try {
      return loader_.next(config_.train.global_batch / config_.train.micro_batch);
    } catch (const Error& error) {
      if (issued_) settle();
      if (position_.step == saved_step_) throw;
      ending_ = error.what();
      save();  // always throws, because ending_ is set
      throw;
    }
  }

  /// Completes the step's metrics, writes them and shows them.
  void report(StepMetrics& metrics, const StepResults& results) {
    metrics.tokens = position_.tokens;
    metrics.flops = flops_ * static_cast<double>(position_.step);
    if (results.expert_load > 0) {
      metrics.balance_loss = results.balance;
      metrics.router_z_loss = results.router_z;
      metrics.expert_load = results.expert_load;
    }
    metrics.memory_bytes = executor_.plan().arena_bytes;
    metrics.tokens_per_second = std::round(static_cast<double>(results.tokens) / metrics.seconds);
    metrics.mfu = flops_ / metrics.seconds / peak_flops_;
    if (data_.sources.size() > 1) metrics.sources = contributions();
    evaluate(metrics);
    end_where_it_fails([&] { records_.append(metrics); });
    console_.show(metrics, last_step());
  }

  /// Runs an action that a run cannot continue without. If it fails, the run ends, but only after
  /// saving a checkpoint of the step.
  template <typename Action>
  void end_where_it_fails(Action&& action) {
    try {
      action();
    } catch (const Error& error) {
      if (!ending_) ending_ = error.what();
    }
  }

  /// Returns what each source has contributed so far.
  std::vector<SourceMetrics> contributions() const {
    return source_metrics(data_, loader_, position_.data);
  }

  /// Logs once that a source repeats: data seen again teaches less than new data.
  void announce_repetition(const LoaderState& before, const LoaderState& now) {
    for (size_t i = 0; i < now.sources.size(); ++i) {
      if (before.sources[i].epoch > 0 || now.sources[i].epoch == 0) continue;
      console_.announce_repetition(data_.sources[i].name, loader_.instances(i) * loader_.context());
    }
  }

  /// What a run that ends by an error is to do once its cause is mended.
  std::string how_to_go_on() const {
    if (saved_step_ == 0) return "start again without --resume: no checkpoint was saved yet";
    return fmt::format("go on from step {} with --resume", saved_step_);
  }

  /// Ends the run after a step that has a loss or a gradient which is not finite. The weights are
  /// those before the step.
  [[noreturn]] void report_non_finite(const StepMetrics& metrics, std::span<const Batch> batches) {
    console_.clear();
    try {
      step_.report_non_finite(batches);
    } catch (const Error& error) {
      throw Error(
          "step {}: loss {}, gradient norm {}: {}. Nothing of this step was kept; lower "
          "optimizer.learning_rate, or look at the data, and {}",
          metrics.step, metrics.loss, metrics.grad_norm, error.what(), how_to_go_on());
    }
    throw InternalError("no value of a step was named that is not finite");
  }

  void evaluate(StepMetrics& metrics) {
    if (!evaluates_after(metrics.step)) return;
    std::vector<SourceEvaluation> evaluations;
    end_where_it_fails([&] {
      evaluations = evaluate_sources(*evaluator_, data_, config_.train.micro_batch,
                                     config_.train.evaluate_batches * config_.train.micro_batch);
    });
    if (evaluations.empty()) {
      *ending_ += fmt::format("; the held-out loss of step {} is lost", metrics.step);
      return;
    }
    add_held_out(metrics, evaluations);
    if (!std::isfinite(*metrics.held_out_loss)) {
      throw Error(
          "step {}: the held-out loss is {}: the update of this step went out of range; "
          "lower optimizer.learning_rate and {}",
          metrics.step, *metrics.held_out_loss, how_to_go_on());
    }
  }

  void save() {
    console_.clear();
    for (const ParameterState& state : store_.parameters()) {
      if (first_non_finite(state.master) >= 0) {
        throw Error(
            "after step {} the weight {} is not finite: the update went out of range; it "
            "was not saved; lower optimizer.learning_rate and {}",
            position_.step, state.spec.name, how_to_go_on());
      }
    }
    // The files beside a checkpoint on the disk must reach its step.
    end_where_it_fails([&] { records_.sync(); });
    try {
      save_training(config_, store_, position_, data_);
    } catch (const Error& error) {
      if (!ending_) throw;
      throw Error("{}; and step {} could not be saved: {}", *ending_, position_.step, error.what());
    }
    saved_step_ = position_.step;
    console_.attempt("old checkpoints were not removed", [&] { prune_training(config_); });
    // The picture can be drawn from the metrics at any time.
    console_.attempt("loss.svg was not drawn",
                     [&] { records_.plot(chunk().parameters.elements(), position_.tokens); });
    if (ending_) {
      throw Error("{} (step {} was saved: go on from it with --resume once that is mended)",
                  *ending_, position_.step);
    }
  }

  void traced_step(int64_t number) {
    Trace trace(runtime_);
    issue(number, &trace);
    step_.set_trace(nullptr);
    settle();
    console_.attempt("the trace was not written", [&] {
      const fs::path path = records_.write_trace(trace.step(), peak_flops_);
      console_.info(
          "wrote the trace of step {} to {}; tessera trace summarize says where its time went",
          number, path.string());
    });
  }

  RunConfig config_;
  const TrainOptions& options_;
  const Logger& logger_;
  RunConsole console_;
  Runtime& runtime_;
  RunRecords records_;
  double peak_flops_;  // per second; 0 until it is measured
  BoundTeam team_;
  StepPrograms programs_;
  Executor executor_;
  ParameterStore store_;
  TrainingStep step_;
  TrainingData data_;
  Loader loader_;
  std::optional<Evaluator> evaluator_;
  TrainingPosition position_;          // after the last step that is settled
  std::optional<IssuedStep> issued_;   // the step after that, if its results are still to be read
  Stopwatch watch_;                    // since the last step was settled, or the first one issued
  double loss_ = 0;                    // of the last step that is settled
  std::optional<std::string> ending_;  // why the run cannot continue; it saves and ends
  int64_t saved_step_ = 0;             // step of the last checkpoint; 0: none
  double flops_ = 0;                   // useful FLOPs of a step
};

/// Throws Error if the folder already holds a run, which must not be overwritten by mistake.
void require_fresh(const RunConfig& config) {
  if (holds_checkpoints(config)) {
    throw Error(
        "{} already holds a run; go on with it by --resume, remove it, or choose another "
        "run.directory",
        config.run.directory);
  }
}

}  // namespace

TrainReport train(const RunConfig& config, const TrainOptions& options, const Logger& logger) {
  const RunConfig resolved = resolve(config);
  std::unique_ptr<Accelerator> accelerator = options.open(resolved);
  const double peak_flops =
      configured_peak(resolved, accelerator.get()).value_or(ProductPeak{}).flops;
  StepPlan plan = plan_step_that_fits(resolved, accelerator.get());
  Runtime runtime(run_target(resolved), std::move(accelerator));
  require_runnable(plan.programs.list(), runtime);
  RunLock lock(resolved.run.directory, logger);
  if (!options.resume) require_fresh(resolved);
  return Trainer(resolved, std::move(plan), runtime, peak_flops, options, logger).run(lock);
}

}  // namespace tessera
