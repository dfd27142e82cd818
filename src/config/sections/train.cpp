#include "config/effects.h"
#include "config/sections.h"

namespace tessera {
namespace {

// Bounds far beyond any run, so that products and sums of values within them do not overflow.
constexpr int64_t kMaxTokens = int64_t{1} << 60;
constexpr int64_t kMaxMicroBatch = 1 << 24;  // sequences

void phase_keys(KeyWriter<PhaseConfig>& writer) {
  using namespace effects;
  writer
      .key("name", &PhaseConfig::name, TextRule{.may_be_empty = true}, {always},
           "the name in reports and pictures; empty: \"phase\" and its number")
      .key("steps", &PhaseConfig::steps, whole(1, kMaxSteps), {always},
           "optimizer steps; give this or tokens")
      .key("tokens", &PhaseConfig::tokens, whole(1, kMaxTokens), {always},
           "tokens to train on, rounded up to whole steps; give this or steps")
      .key("context", &PhaseConfig::context, whole(2, kMaxContext), {always},
           "tokens of one sequence; left out: data.context")
      .key("global_batch", &PhaseConfig::global_batch, whole(1, kMaxGlobalBatch), {always},
           "sequences of an optimizer step; left out: train.global_batch")
      .key("micro_batch", &PhaseConfig::micro_batch, whole(1, kMaxMicroBatch), {always},
           "sequences at once on each data-parallel rank; left out: train.micro_batch")
      .key("rope_theta", &PhaseConfig::rope_theta, between(1, kMaxNumber), {always},
           "base of the rotary embedding's frequencies; left out: model.rope_theta")
      .key(
          "sources", &PhaseConfig::sources, ListRule{}, {always},
          "the [[data.sources]] that the phase draws from: \"NAME\", with the source's own weight, "
          "or \"NAME=WEIGHT\"; empty: all of them")
      .key(
          "learning_rate", &PhaseConfig::learning_rate, f32_above_zero(kMaxWeight),
          {peak_of_this_phase},
          "the highest learning rate; left out: optimizer.learning_rate. A phase that sets neither "
          "this key nor one of the next three goes on with the learning-rate course of the phase "
          "before it, which then ends later")
      .key(
          "minimum_learning_rate", &PhaseConfig::minimum_learning_rate, f32_between(0, kMaxWeight),
          {minimum_of_this_phase},
          "the learning rate at which the schedule ends; left out: optimizer.minimum_learning_rate")
      .key("schedule", &PhaseConfig::schedule, word_rule<Schedule>(), {schedule_of_this_phase},
           "how the learning rate changes after the warm-up; left out: optimizer.schedule")
      .key("warmup_steps", &PhaseConfig::warmup_steps, whole(0, kMaxSteps), {always},
           "steps in which the learning rate rises from 0; left out: 0, in the first phase "
           "optimizer.warmup_steps");
}

std::string phase_label(const PhaseConfig& phase) { return phase.name; }

}  // namespace

ConfigSection train_section() {
  using namespace effects;
  return SectionWriter("train", &RunConfig::train, "how long, in which portions and how precisely")
      .list("phases", &TrainSection::phases, phase_keys, phase_label,
            "stretches of the run, one after the other, each with what it changes")
      .key("steps", &TrainSection::steps, whole(1, kMaxSteps), {always},
           "optimizer steps of the whole schedule; with [[train.phases]] left out: their sum")
      .key("stop_after", &TrainSection::stop_after, whole(0, kMaxSteps),
           {stops_before_the_end, int64_t{0}},
           "save and exit after this step, the schedule still being that of `steps`; 0: at the end")
      .key("micro_batch", &TrainSection::micro_batch, whole(1, kMaxMicroBatch),
           {lacking_in_a_phase<&PhaseConfig::micro_batch>},
           "sequences that run through the model at once, on each data-parallel rank")
      .key(
          "global_batch", &TrainSection::global_batch, whole(1, kMaxGlobalBatch),
          {lacking_in_a_phase<&PhaseConfig::global_batch>},
          "sequences of an optimizer step; a multiple of micro_batch times the data-parallel ranks")
      .key("precision", &TrainSection::precision, word_rule<Precision>(), {always},
           "type of weights and activations in the model's computations")
      .key("tf32", &TrainSection::tf32, FlagRule{}, {on_cuda, false},
           "on the device cuda, matrix products of fp32, the router's too, round their operands to "
           "TF32; those of experts do not")
      .key("recompute", &TrainSection::recompute, word_list_rule<RecomputedBlock>(), {recomputes},
           "what is computed again in the backward pass instead of kept, to save memory")
      .key("recompute_stages", &TrainSection::recompute_stages,
           NumbersRule{.minimum = 0, .maximum = kMostRanks},
           {recomputes_on_stages, std::vector<int64_t>()},
           "the pipeline stages, from 0 on, that recompute; empty: all. The first stages hold the "
           "activations of the most micro-batches")
      .key("seed", &TrainSection::seed, at_least(0), {draws_weights}, "the seed of initial weights")
      .key("evaluate_every", &TrainSection::evaluate_every, whole(0, kMaxSteps), {always},
           "steps between evaluations on held-out data; 0: none")
      .key("evaluate_batches", &TrainSection::evaluate_batches, whole(1, int64_t{1} << 32),
           {evaluates}, "micro-batches of one evaluation")
      .section();
}

}  // namespace tessera
