#include "plan/fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "config/load_config.h"
#include "config/mesh_of.h"
#include "config/resolve.h"
#include "pipeline/generate.h"
#include "pipeline/schedule_file.h"
#include "plan/run_target.h"
#include "support/error_of.h"
#include "support/temporary_folder.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const fs::path kConfigs = fs::path(TESSERA_SOURCE) / "configs";

Hardware sheet(const std::string& name) { return read_hardware(kConfigs / "hardware" / name); }

RunConfig olmoe(int64_t micro_batch, int64_t global_batch) {
  RunConfig config = load_config(kConfigs / "olmoe-1b-7b.toml");
  config.train.micro_batch = micro_batch;
  config.train.global_batch = global_batch;
  return resolve_data(config);
}

/// The same with two layers, where the number of layers does not matter.
RunConfig short_olmoe(int64_t micro_batch, int64_t global_batch) {
  RunConfig config = olmoe(micro_batch, global_batch);
  config.model.layers = 2;
  return config;
}

Fit fit(const RunConfig& config, const Hardware& hardware) {
  return fit_on(config, plan_step(config, run_target(config, hardware.accelerator.value())),
                hardware);
}

/// OLMoE-1B-7B by its paper: 16 layers of width 2048, 64 experts of 1024, a vocabulary of 50304,
/// norms of queries and keys, an output head of its own.
TEST(Fit, OlmoeWithAdamsStatesFitsOneH200AndNoH100) {
  const double width = 2048, expert = 1024, layers = 16, experts = 64, vocabulary = 50304;
  const double attention = 4 * width * width, norms = 4 * width;
  const double layer = attention + experts * 3 * width * expert + experts * width + norms;
  const double parameters = layers * layer + 2 * vocabulary * width + width;
  // bf16 weights; masters, gradients and two moments in f32.
  const double states = parameters * (2 + 4 * 4);
  ASSERT_GT(states, 80e9);
  ASSERT_LT(states, 141e9);

  const RunConfig config = olmoe(1, 64);
  const Fit h200 = fit(config, sheet("nvidia-h200.json"));
  EXPECT_NEAR(static_cast<double>(h200.state_bytes), states, 1e-3 * states);
  EXPECT_GT(h200.needed_bytes, h200.state_bytes);
  EXPECT_TRUE(h200.fits());
  EXPECT_GE(h200.largest_micro_batch, 1);

  const Fit h100 = fit(config, sheet("nvidia-h100.json"));
  EXPECT_FALSE(h100.fits());
  EXPECT_EQ(h100.largest_micro_batch, 0);
  EXPECT_THAT(fit_text(h100, config),
              AllOf(HasSubstr(" of at least 74.5 GiB, less 1.0 GiB for libraries, kernels and "
                              "graphs: does not fit"),
                    HasSubstr("no train.micro_batch fits"), HasSubstr("computed from a data sheet"),
                    HasSubstr("only a smaller model or more memory helps"),
                    Not(HasSubstr("lower data.context"))));
}

TEST(Fit, TheLargestMicroBatchFitsAndTheNextDivisorDoesNot) {
  // The sizes of memory that a plan takes decide.
  const RunConfig config = short_olmoe(1, 12);
  Hardware hardware = sheet("nvidia-h200.json");
  const auto bytes = [&](int64_t micro_batch) {
    const RunConfig with = short_olmoe(micro_batch, 12);
    return plan_step(with, run_target(with, *hardware.accelerator)).memory.arena_bytes;
  };
  hardware.accelerator->memory_bytes.value = bytes(4) + kDeviceReserve;
  EXPECT_EQ(fit(config, hardware).largest_micro_batch, 4);
  hardware.accelerator->memory_bytes.value = bytes(4) + kDeviceReserve - 1;
  EXPECT_EQ(fit(config, hardware).largest_micro_batch, 3);
  hardware.accelerator->memory_bytes.value = bytes(12) + kDeviceReserve;
  EXPECT_EQ(fit(config, hardware).largest_micro_batch, 12);
  const RunConfig five = short_olmoe(6, 12);
  hardware.accelerator->memory_bytes.value = bytes(4) + kDeviceReserve;
  const Fit too_large = fit(five, hardware);
  EXPECT_FALSE(too_large.fits());
  EXPECT_EQ(too_large.largest_micro_batch, 4);
  EXPECT_THAT(fit_text(too_large, five), HasSubstr("lower train.micro_batch (6)"));
}

/// Interleaved 1F1B takes multiples of its stages in micro-batches: 8, 4 or 2 of these.
TEST(Fit, TheLargestMicroBatchSuitsTheSchedule) {
  RunConfig config = short_olmoe(1, 8);
  config.model.layers = 4;
  config.parallel.pipeline = 2;
  config.parallel.virtual_stages = 2;
  config.parallel.schedule = "interleaved";
  const Hardware hardware = sheet("nvidia-h200.json");
  const StepPlan plan =
      plan_step(config, run_target(config, hardware.accelerator.value()), {mesh_of(config, 2), 0});
  EXPECT_EQ(fit_on(config, plan, hardware).largest_micro_batch, 4);
}

/// The file is for 4 micro-batches, so the configured micro-batch of 2 sequences is the only one.
TEST(Fit, AScheduleFromAFileLeavesTheConfiguredMicroBatch) {
  const TemporaryFolder folder;
  const ActionLists lists = one_forward_one_backward({.ranks = 2, .chunks = 2, .micro_batches = 4});
  write_file(folder / "lists", schedule_text(lists));
  RunConfig config = short_olmoe(2, 8);
  config.parallel.pipeline = 2;
  config.parallel.schedule = (folder / "lists").string();
  Hardware hardware = sheet("nvidia-h200.json");
  const StepPlan plan =
      plan_step(config, run_target(config, hardware.accelerator.value()), {mesh_of(config, 2), 0});
  const Fit fits = fit_on(config, plan, hardware);
  EXPECT_EQ(fits.largest_micro_batch, 2);
  EXPECT_EQ(fits.least_bytes, fits.needed_bytes);
  hardware.accelerator->memory_bytes.value = fits.needed_bytes + kDeviceReserve - 1;
  const Fit too_large = fit_on(config, plan, hardware);
  EXPECT_EQ(too_large.largest_micro_batch, 0);
  EXPECT_THAT(fit_text(too_large, config),
              HasSubstr("no train.micro_batch fits: 2, the smallest of the schedule, takes"));
}

TEST(Fit, AStepTakesAtLeastWhatItsProductsAndItsBytesTake) {
  const RunConfig config = short_olmoe(1, 64);
  const Hardware hardware = sheet("nvidia-h200.json");
  const Fit h200 = fit(config, hardware);
  EXPECT_EQ(h200.tokens, 64 * config.data.context);
  EXPECT_GT(h200.seconds(), h200.useful_flops / 989e12);
  EXPECT_LT(h200.mfu(), 1);
  EXPECT_THAT(fit_text(h200, config),
              AllOf(HasSubstr(" in operations that the peak of products limits, "),
                    HasSubstr(" in those that the bandwidth limits; ")));
  // The optimizer alone reads and writes masters, gradients and moments.
  EXPECT_GT(h200.memory_seconds, static_cast<double>(h200.state_bytes) / 4.8e12);
  // Twice as fast a machine takes half as long.
  Hardware twice = hardware;
  for (PeakRate& peak : twice.accelerator->peaks) peak.flops.value *= 2;
  twice.accelerator->memory_bandwidth->value *= 2;
  EXPECT_NEAR(fit(config, twice).seconds(), h200.seconds() / 2, 1e-9 * h200.seconds());
  EXPECT_NEAR(fit(config, twice).mfu(), h200.mfu(), 1e-9);
}

TEST(Fit, MeasuredCeilingsTakeThePlaceOfTheDataSheets) {
  const RunConfig config = short_olmoe(1, 64);
  Hardware hardware = sheet("nvidia-h200.json");
  const Fit before = fit(config, hardware);
  hardware.gemms.push_back({DType::bf16, GemmLayout::forward, 4096, 4096, 4096, 7e14, 7e14});
  hardware.memory.push_back({MemoryKernel::copy, int64_t{1} << 30, 4e12, 4e12});
  const Fit measured = fit(config, hardware);
  EXPECT_EQ(measured.gemm_flops, 7e14);
  EXPECT_EQ(measured.memory_bandwidth, 4e12);
  EXPECT_GT(measured.seconds(), before.seconds());
  EXPECT_THAT(fit_text(measured, config), Not(HasSubstr("nothing was measured")));
  EXPECT_EQ(fit_json(measured)["source"], "measured");
  EXPECT_EQ(fit_json(before)["source"], "data sheet");
}

TEST(Fit, OfAPrecisionWithoutAPeakIsAnError) {
  RunConfig config = short_olmoe(1, 64);
  config.train.precision = Precision::fp64;
  const Hardware hardware = sheet("nvidia-h200.json");
  EXPECT_THAT(error_of([&] { fit(config, hardware); }), HasSubstr("f64"));
}

TEST(Fit, ProductsThatRoundToTf32HaveAPeakOfTheirOwn) {
  RunConfig config = short_olmoe(1, 64);
  config.train.precision = Precision::fp32;
  Hardware hardware = sheet("nvidia-h200.json");
  const Fit whole = fit(config, hardware);
  EXPECT_EQ(whole.gemm_flops, 67e12);
  config.train.tf32 = true;
  const Fit rounded = fit(config, hardware);
  EXPECT_EQ(rounded.gemm_flops, 494.5e12);
  EXPECT_LT(rounded.seconds(), whole.seconds());
  EXPECT_THAT(fit_text(rounded, config), HasSubstr("FLOP/s in tf32"));
  // Products of bf16 do not round, and other devices have no TF32.
  config.train.precision = Precision::bf16;
  EXPECT_EQ(fit(config, hardware).gemm_flops, 989e12);
  config.train.precision = Precision::fp32;
  EXPECT_GT(fit(config, sheet("amd-mi300x.json")).gemm_flops, 0);
  hardware.accelerator->tf32_flops.reset();
  EXPECT_THAT(error_of([&] { fit(config, hardware); }), HasSubstr("tf32_flops"));
}

/// Every shipped configuration can be planned for every shipped accelerator.
TEST(Fit, OfEveryShippedConfigurationIsKnown) {
  for (const auto& machine : fs::directory_iterator(kConfigs / "hardware")) {
    const Hardware hardware = read_hardware(machine.path());
    for (const char* name : {"demo.toml", "olmo-1b.toml", "mixtral-8x7b.toml"}) {
      RunConfig config = load_config(kConfigs / name);
      if (config.model.vocabulary_size == 0) config.model.vocabulary_size = 4096;
      config = resolve_data(config);
      const Fit result = fit(config, hardware);
      EXPECT_GT(result.seconds(), 0) << name;
      EXPECT_LE(result.least_bytes, result.needed_bytes) << name;
      EXPECT_EQ(result.fits(), result.largest_micro_batch >= config.train.micro_batch) << name;
    }
  }
}

}  // namespace
}  // namespace tessera
