#include <map>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hardware/processor.h"
#include "metrics/metrics.h"
#include "pipeline/run_trace.h"
#include "support/prepared_data.h"
#include "train/train_options.h"
#include "train/trainer.h"

namespace tessera {
namespace {

using ::testing::IsSupersetOf;
using testing::kQuiet;
using ::testing::UnorderedElementsAre;

/// Documents of some 60 bytes, prepared for a context of 1024.
void write_documents(const fs::path& folder) {
  std::string lines;
  for (int i = 0; i < 1200; ++i) {
    lines += fmt::format("{{\"text\": \"Document {} is about the number {} and ends soon.\"}}\n", i,
                         7 * i % 100);
  }
  write_file(folder / "text.jsonl", lines);
  PrepareOptions options{.inputs = {(folder / "text.jsonl").string()},
                         .tokenizer = "bytes",
                         .context = 1024,
                         .held_out = 0.05,
                         .output = folder / "data",
                         .threads = 2,
                         .progress = false};
  prepare(options, Logger());
}

double product_flops(const StepTrace& trace, const TraceEvent& event) {
  double flops = 0;
  for (const auto& [product, runs] : event.products) {
    flops += trace.products[static_cast<size_t>(product)].flops() * static_cast<double>(runs);
  }
  return flops;
}

/// The step of the only rank of a run.
StepTrace step_of(const fs::path& run) {
  const RunTrace trace = read_trace(run / "trace.json");
  EXPECT_EQ(trace.ranks.size(), 1U);
  return trace.ranks.front().step;
}

TEST(TrainerTrace, HoldsTheWholeStep) {
  const TemporaryFolder folder;
  testing::prepare_small_data(folder.path());
  const std::vector<std::string> overrides{"train.steps=3", "optimizer.warmup_steps=1",
                                           "run.trace_step=2", "train.recompute=[\"experts\"]"};
  train(parse_config(testing::small_config(folder.path(), "traced"), "test", overrides), kQuiet,
        Logger());
  const StepTrace trace = step_of(folder.path() / "traced");
  EXPECT_EQ(trace.number, 2);
  EXPECT_EQ(trace.origin.threads, 2);
  EXPECT_EQ(trace.origin.features, this_processor(2).features);
  EXPECT_EQ(trace.origin.tokens, 4 * 32);
  EXPECT_GT(trace.origin.gemm_peak, 0);
  std::set<std::string> names, blocks, phases;
  double flops = 0, busy = 0;
  for (const TraceEvent& event : trace.events) {
    names.insert(event.name);
    blocks.insert(event.block);
    phases.insert(event.phase);
    busy += event.duration;
    if (event.phase != "recompute") flops += event.flops;
    const double ran = product_flops(trace, event);
    const double backward = event.name == "linear_cross_entropy" ? event.flops * 2 / 3 : 0;
    EXPECT_DOUBLE_EQ(event.backward_flops, backward) << event.name;
    const double stated = event.flops + event.repeated_flops;
    if (event.name == "attention" || event.name == "attention_gradient" ||
        event.name.starts_with("grouped_linear")) {
      EXPECT_GE(ran, stated) << event.name << ": tiles and pieces hold at least what is demanded";
    } else {
      EXPECT_DOUBLE_EQ(ran, stated) << event.name;
    }
  }
  // Everything that a step does is an event, and each knows its block.
  EXPECT_THAT(names, IsSupersetOf({"next_batches", "copy_batch", "zero", "linear", "attention",
                                   "grouped_linear", "linear_cross_entropy", "running_sum",
                                   "sum_of_squares", "add_in_order", "clip_gradients", "adamw"}));
  EXPECT_THAT(blocks, UnorderedElementsAre("attention", "data", "embedding", "experts", "head",
                                           "loss", "norm", "optimizer", "router"));
  EXPECT_THAT(phases, UnorderedElementsAre("forward", "recompute", "backward", "update", "step"));
  EXPECT_LE(busy + trace.recording_seconds, trace.duration);
  EXPECT_NEAR(flops, read_metrics(folder.path() / "traced" / "metrics.jsonl")[0].flops.value(),
              1e-9 * flops);
}

TEST(TrainerTrace, MaskedTilesAndDroppedTokensAreStatedButDoNotRun) {
  TemporaryFolder folder;
  write_documents(folder.path());
  testing::write_known_peak(folder / "hardware.json", testing::two_threads());
  const std::vector<std::string> overrides{"data.context=1024",         "train.steps=2",
                                           "optimizer.warmup_steps=1",  "train.global_batch=2",
                                           "model.capacity_factor=0.5", "run.trace_step=2"};
  train(parse_config(testing::small_config(folder.path(), "traced"), "test", overrides), kQuiet,
        Logger());
  const StepTrace trace = step_of(folder.path() / "traced");
  std::map<std::string, double> ran, stated;
  for (const TraceEvent& event : trace.events) {
    ran[event.name] += product_flops(trace, event);
    stated[event.name] += event.flops + event.repeated_flops;
  }
  for (const auto& [name, flops] : stated) {
    EXPECT_EQ(ran[name] > 0, flops > 0) << name << ": what states products records them";
  }
  for (const char* name : {"attention", "attention_gradient", "grouped_linear"}) {
    EXPECT_LT(ran[name], 0.8 * stated[name]) << name;
  }
}

}  // namespace
}  // namespace tessera
