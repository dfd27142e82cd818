#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "ops/update/adamw.h"
#include "ops/update/clip.h"
#include "ops/update/kept_values.h"
#include "ops/update/sum_of_squares.h"
#include "support/emulated.h"

namespace tessera {
namespace {

using Results = std::vector<std::vector<double>>;
using testing::Emulation;

/// A runtime of the processor's plain kernels, or of a device.
Runtime runtime_of(const std::optional<Emulation>& emulation) {
  return testing::make_runtime(host_target(1, Kernels::plain), emulation);
}

/// Calls run() for the processor and for all devices. The results of a device must be close to the
/// processor's. also(results) checks more of them.
void expect_results_agree(
    const std::function<Results(const std::optional<Emulation>&)>& run,
    const testing::Tolerance& tolerance,
    const std::function<void(const Results&)>& also = [](const Results&) {}) {
  const Results expected = run(std::nullopt);
  testing::expect_equal_bits_on_devices(testing::any_lanes(), run, [&](const Results& results) {
    ASSERT_EQ(results.size(), expected.size());
    for (size_t i = 0; i < results.size(); ++i) {
      testing::expect_close(results[i], expected[i], tolerance, fmt::format("result {}", i));
    }
    also(results);
  });
}

/// Sizes of flat values: small and odd, and now and then more than a block of a device handles.
rc::Gen<int64_t> any_size() {
  return rc::gen::weightedOneOf<int64_t>({{12, rc::gen::inRange<int64_t>(1, 100)},
                                          {7, rc::gen::inRange<int64_t>(100, 2000)},
                                          {1, rc::gen::inRange<int64_t>(16380, 16400)}});
}

/// Cuts units into sections at any places, and leaves gaps.
std::vector<Section> any_sections(const std::vector<int64_t>& sizes) {
  std::vector<Section> sections;
  for (size_t unit = 0; unit < sizes.size(); ++unit) {
    int64_t end = 0;
    for (int part = 0; part < 3; ++part) {
      const int64_t begin = *rc::gen::inRange<int64_t>(end, sizes[unit] + 1);
      end = *rc::gen::inRange<int64_t>(begin, sizes[unit] + 1);
      sections.push_back({static_cast<int>(unit), begin, end});
    }
  }
  return sections;
}

std::vector<int64_t> any_sizes() {
  return *rc::gen::container<std::vector<int64_t>>(*rc::gen::inRange<size_t>(1, 4), any_size());
}

RC_GTEST_PROP(Zero, TheDevicesKernelsLeaveZeros, ()) {
  std::vector<int64_t> sizes = any_sizes();
  sizes.push_back(*rc::gen::element<int64_t>(65536, 65537, 131075));
  Program program;
  Builder builder(program);
  std::vector<Value> values;
  for (const int64_t size : sizes) {
    const DType dtype = *rc::gen::element(DType::bf16, DType::f32, DType::f64);
    values.push_back(builder.state(fmt::format("value{}", values.size()), {{size}, dtype, {}}));
  }
  const Value other = builder.state("other", {{100}, DType::f32, {}});
  zero(builder, values);
  add_to_sum(builder, builder.state("sum", {{1}, DType::f64, {}}), other);
  const auto random_of = [&](Value value) {
    const Spec& spec = program.spec(value);
    return testing::random_tensor(spec.shape, spec.dtype, program.info(value).name, 5);
  };
  testing::expect_equal_bits_on_devices(
      testing::any_lanes(),
      [&](const Emulation& device) {
        Runtime runtime = runtime_of(device);
        testing::ProgramRun run(program, runtime);
        for (const Value value : values) run.bind(value, random_of(value));
        run.bind(other, random_of(other));
        run.run();
        Results results{testing::as_doubles(run[other])};
        for (const Value value : values) results.push_back(testing::as_doubles(run[value]));
        return results;
      },
      [&](const Results& results) {
        EXPECT_EQ(results[0], testing::as_doubles(random_of(other)));
        for (size_t i = 0; i < sizes.size(); ++i) {
          ASSERT_EQ(results[i + 1], std::vector<double>(static_cast<size_t>(sizes[i]), 0));
        }
      });
}

/// The bytes of a table stay where a captured copy finds them, whatever other tables there are.
void expect_zeros_from_a_graph(const Emulation& device) {
  Program program;
  Builder builder(program);
  const std::vector<int64_t> sizes{1000, 7, 300};
  std::vector<Value> values;
  for (const int64_t size : sizes) {
    values.push_back(
        builder.state(fmt::format("value{}", values.size()), {{size}, DType::f32, {}}));
  }
  zero(builder, std::span(values).first(2));
  zero(builder, std::span(values).last(1));
  Runtime runtime = runtime_of(device);
  Accelerator& accelerator = *runtime.accelerator();
  std::vector<std::unique_ptr<DeviceMemory>> memories;
  std::vector<Tensor> tensors;
  for (const int64_t size : sizes) {
    memories.push_back(accelerator.allocate(size * 4));
    tensors.push_back(Tensor::wrap(memories.back()->address(), {size}, DType::f32, &accelerator));
  }
  const int64_t workspace_bytes = program.nodes()[0].operation->workspace_bytes(
      runtime.target(), program.specs(program.nodes()[0].inputs));
  const auto workspace = accelerator.allocate(workspace_bytes);
  const auto stream = accelerator.make_stream();
  const auto run = [&](size_t node, std::span<const Tensor> inputs) {
    program.nodes()[node].operation->run(
        {runtime,
         inputs,
         {},
         {static_cast<std::byte*>(workspace->address()), static_cast<size_t>(workspace_bytes)},
         stream.get()});
  };
  const auto run_both = [&] {
    run(0, std::span(tensors).first(2));
    run(1, std::span(tensors).last(1));
  };
  run_both();  // makes what the operations keep, which a capture does not allow
  stream->begin_capture();
  run_both();
  const auto graph = stream->end_capture();
  for (int launch = 0; launch < 2; ++launch) {
    for (const Tensor& tensor : tensors) {
      const std::vector<float> ones(static_cast<size_t>(tensor.elements()), 1);
      upload(std::as_bytes(std::span(ones)), tensor);
    }
    stream->launch(*graph);
    for (const Tensor& tensor : tensors) {
      std::vector<float> numbers(static_cast<size_t>(tensor.elements()));
      readback(tensor, std::as_writable_bytes(std::span(numbers)));
      EXPECT_EQ(std::ranges::count(numbers, 0.0f), tensor.elements()) << "launch " << launch;
    }
  }
}

TEST(Zero, TheDevicesKernelsRunFromAGraphAgainAndAgain) {
  for (const Emulation& device : testing::every_device()) {
    SCOPED_TRACE(describe(device));
    expect_zeros_from_a_graph(device);
  }
}

/// The sum of all sums of squares.
Value whole_sum(Builder& builder, Value sums) {
  return add_in_order(builder, std::vector{sums}, {{0, 0, builder.spec(sums).shape[0]}});
}

RC_GTEST_PROP(SumOfSquares, TheDevicesKernelsAgreeWithThePlainOnes, ()) {
  std::vector<int64_t> sizes = any_sizes();
  sizes.push_back(*rc::gen::inRange<int64_t>(1, 50000));
  const std::vector<Section> sections = any_sections(sizes);
  expect_results_agree(
      [&](const std::optional<Emulation>& emulation) {
        Program program;
        Builder builder(program);
        std::vector<Value> units;
        for (const int64_t size : sizes) {
          units.push_back(
              builder.state(fmt::format("unit{}", units.size()), {{size}, DType::f32, {}}));
        }
        const Value sum = sum_of_squares(builder, units, sections);
        const Value whole = whole_sum(builder, sum);
        builder.output(whole);
        builder.output(sum);
        Runtime runtime = runtime_of(emulation);
        testing::ProgramRun run(program, runtime);
        for (size_t i = 0; i < units.size(); ++i) {
          run.bind(units[i], testing::random_tensor({sizes[i]}, DType::f32, fmt::format("{}", i)));
        }
        run.run();
        return Results{testing::as_doubles(run[sum]), testing::as_doubles(run[whole])};
      },
      {1e-13, 0});
}

/// Whole numbers, whose sum is exact: none is left out or counted twice where blocks share them.
TEST(AddInOrder, TheDevicesBlocksTakeEachSumOnce) {
  for (const int64_t size : {1, 511, 8191, 8192, 8193, 20'000, 50'000}) {
    for (const Emulation& device : testing::every_device()) {
      SCOPED_TRACE(fmt::format("{} sums on {}", size, describe(device)));
      Program program;
      Builder builder(program);
      const Value first = builder.input("first", {{size}, DType::f64, {}});
      const Value second = builder.input("second", {{3}, DType::f64, {}});
      const Value sum = add_in_order(builder, std::vector{first, second},
                                     {{0, 0, size}, {1, 1, 3}, {0, 0, size / 2}});
      builder.output(sum);
      Runtime runtime = runtime_of(device);
      testing::ProgramRun run(program, runtime);
      for (const auto& [value, count] : {std::pair{first, size}, {second, int64_t{3}}}) {
        const Tensor numbers({count}, DType::f64);
        for (int64_t i = 0; i < count; ++i) numbers.data<double>()[i] = static_cast<double>(i + 1);
        run.bind(value, numbers);
      }
      const auto up_to = [](int64_t count) { return static_cast<double>(count * (count + 1) / 2); };
      const double expected = up_to(size) + 2 + 3 + up_to(size / 2);
      run.run();
      EXPECT_EQ(testing::as_doubles(run[sum]), std::vector{expected});
    }
  }
}

RC_GTEST_PROP(Clip, TheDevicesKernelsAgreeWithThePlainOnes, ()) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double squares = *rc::gen::element(0.0, 9.0, 1e300, infinity, std::nan(""));
  const double limit = *rc::gen::element(0.0, 1.0, 3.0, 5.0);
  const auto losses = *rc::gen::container<std::vector<double>>(
      *rc::gen::inRange<size_t>(0, 4), rc::gen::element(0.5, 0.5, 0.5, infinity, std::nan("")));
  expect_results_agree(
      [&](const std::optional<Emulation>& emulation) {
        Program program;
        Builder builder(program);
        Runtime runtime = runtime_of(emulation);
        testing::ProgramRun run(program, runtime);
        const auto declare = [&](const std::string& name, double number) {
          const Value value = builder.input(name, {{1}, DType::f64, {}});
          const Tensor tensor({1}, DType::f64);
          *tensor.data<double>() = number;
          run.bind(value, tensor);
          return value;
        };
        std::vector<Value> values;
        for (const double loss : losses) {
          values.push_back(declare(fmt::format("loss{}", values.size()), loss));
        }
        const Clipped clipped =
            clip_gradients(builder, declare("squares", squares), declare("limit", limit), values);
        builder.output(clipped.norm);
        builder.output(clipped.scale);
        run.run();
        Results results;
        for (const Value value : {clipped.norm, clipped.scale}) {  // NaN is unequal to itself
          const double number = *run[value].data<double>();
          const bool finite = std::isfinite(number);
          results.push_back({finite ? number : 0, finite ? 0.0 : std::isnan(number) ? 2.0 : 1.0});
        }
        return results;
      },
      {});
}

/// What one case of AdamW updates.
struct Updated {
  std::vector<int64_t> sizes;  ///< of the units
  std::vector<bool> rounds;    ///< by unit: bf16 weights with masters, or f32 ones
  std::vector<AdamWSection> sections;
};

/// How far weights lie from their masters rounded: 0 where they were updated.
std::vector<double> from_rounding(const Tensor& weight, const Tensor& master) {
  std::vector<double> difference;
  for (int64_t i = 0; i < weight.elements(); ++i) {
    difference.push_back(static_cast<float>(weight.data<BFloat16>()[i]) -
                         static_cast<float>(static_cast<BFloat16>(master.data<float>()[i])));
  }
  return difference;
}

/// The norm, all states, and how the weights are rounded, after each of three whole updates. The
/// loss of the second one is given.
Results numbers_after_updates(const Updated& updated, double limit, double second_loss,
                              const std::optional<Emulation>& emulation) {
  Program program;
  Builder builder(program);
  Runtime runtime = runtime_of(emulation);
  testing::ProgramRun run(program, runtime);
  std::vector<Value> kept, gradients;
  std::vector<std::pair<Value, Value>> rounded;  // weights and masters
  const auto state = [&](const char* name, size_t unit, bool positive = false) {
    const Shape shape{updated.sizes[unit]};
    const std::string full = fmt::format("{}{}", name, unit);
    kept.push_back(builder.state(full, {shape, DType::f32, {}}));
    const Tensor tensor = testing::random_tensor(shape, DType::f32, full);
    for (float& number : tensor.values<float>()) number = positive ? std::abs(number) : number;
    run.bind(kept.back(), tensor);
    return kept.back();
  };
  std::vector<AdamWUnit> units;
  for (size_t unit = 0; unit < updated.sizes.size(); ++unit) {
    const Shape shape{updated.sizes[unit]};
    gradients.push_back(builder.input(fmt::format("gradient{}", unit), {shape, DType::f32, {}}));
    AdamWUnit values{.gradient = gradients.back(),
                     .first_moment = state("first", unit),
                     .second_moment = state("second", unit, true),
                     .master = state("master", unit),
                     .weight = {}};
    if (updated.rounds[unit]) {
      values.weight = builder.parameter(fmt::format("weight{}", unit), {shape, DType::bf16, {}});
      run.bind(*values.weight, testing::random_tensor(shape, DType::bf16, "weight"));
      rounded.emplace_back(*values.weight, values.master);
    }
    units.push_back(values);
  }
  const auto scalar = [&](const char* name) { return builder.input(name, {{1}, DType::f64, {}}); };
  const auto set = [&](Value value, double number) {
    const Tensor tensor({1}, DType::f64);
    *tensor.data<double>() = number;
    run.bind(value, tensor);
  };
  const Value rate = scalar("rate"), limit_of_norm = scalar("limit"), step = scalar("step");
  const Value loss = scalar("loss");
  std::vector<Section> squared;
  for (const AdamWSection& of : updated.sections) squared.push_back(of.section);
  const Value squares = whole_sum(builder, sum_of_squares(builder, gradients, squared));
  const Clipped clipped = clip_gradients(builder, squares, limit_of_norm, {{loss}});
  builder.output(clipped.norm);
  adamw(builder, {.scale = clipped.scale, .learning_rate = rate, .step = step}, units,
        updated.sections, {.weight_decay = 0.1});

  Results results;
  set(limit_of_norm, limit);
  for (int t = 1; t <= 3; ++t) {
    for (size_t unit = 0; unit < gradients.size(); ++unit) {
      run.bind(gradients[unit],
               testing::random_tensor({updated.sizes[unit]}, DType::f32,
                                      fmt::format("gradient {} of step {}", unit, t)));
    }
    set(rate, 0.01 * t);
    set(step, t);
    set(loss, t == 2 ? second_loss : 1);
    run.run();
    results.push_back(testing::as_doubles(run[clipped.norm]));
    for (const Value value : kept) results.push_back(testing::as_doubles(run[value]));
    for (const auto& [weight, master] : rounded) {
      results.push_back(from_rounding(run[weight], run[master]));
    }
  }
  return results;
}

RC_GTEST_PROP(AdamW, TheDevicesKernelsAgreeWithThePlainOnes, ()) {
  Updated updated{.sizes = any_sizes(), .rounds = {}, .sections = {}};
  for (size_t unit = 0; unit < updated.sizes.size(); ++unit) {
    updated.rounds.push_back(*rc::gen::arbitrary<bool>());
  }
  for (const Section& section : any_sections(updated.sizes)) {
    updated.sections.push_back({section, *rc::gen::arbitrary<bool>()});
  }
  const double limit = *rc::gen::element(0.0, 0.5, 1e6);
  const double loss = *rc::gen::element(1.0, std::nan(""), HUGE_VAL);
  const auto run = [&](const std::optional<Emulation>& emulation) {
    return numbers_after_updates(updated, limit, loss, emulation);
  };
  expect_results_agree(run, testing::device_tolerance(DType::f32), [&](const Results& results) {
    if (std::isfinite(loss)) return;
    const size_t of_step = results.size() / 3;
    for (size_t i = 1; i < of_step; ++i) {
      ASSERT_EQ(results[of_step + i], results[i])
          << "a step that is not finite changed state " << i;
    }
  });
}

TEST(AdamW, RefusesToUpdateElementsTwice) {
  Program program;
  Builder builder(program);
  const auto state = [&](const char* name) { return builder.state(name, {{100}, DType::f32, {}}); };
  const std::vector<AdamWUnit> units(2, {state("gradient"), state("first_moment"),
                                         state("second_moment"), state("master"), std::nullopt});
  const auto update = [&](const Section& second) {
    const AdamWInputs inputs{builder.input("scale", {{1}, DType::f64, {}}),
                             builder.input("learning_rate", {{1}, DType::f64, {}}),
                             builder.input("step", {{1}, DType::f64, {}})};
    adamw(builder, inputs, units, {{{.unit = 0, .begin = 20, .end = 60}}, {second}}, {});
  };
  EXPECT_NO_THROW(update({.unit = 0, .begin = 60, .end = 100}));
  EXPECT_NO_THROW(update({.unit = 1, .begin = 20, .end = 60}));
  try {
    update({.unit = 0, .begin = 0, .end = 21});
    ADD_FAILURE() << "elements are updated twice";
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(),
                ::testing::HasSubstr("elements 20 to 21 of unit 0 are in two sections"));
  }
}

RC_GTEST_PROP(RoundToWeights, TheDevicesKernelsAgreeWithThePlainOnes, ()) {
  const std::vector<int64_t> sizes = any_sizes();
  expect_results_agree(
      [&](const std::optional<Emulation>& emulation) {
        Program program;
        Builder builder(program);
        Runtime runtime = runtime_of(emulation);
        testing::ProgramRun run(program, runtime);
        std::vector<Value> masters, weights;
        for (size_t i = 0; i < sizes.size(); ++i) {
          const Shape shape{sizes[i]};
          masters.push_back(builder.state(fmt::format("master{}", i), {shape, DType::f32, {}}));
          weights.push_back(
              builder.parameter(fmt::format("weight{}", i), {shape, DType::bf16, {}}));
          run.bind(masters[i], testing::random_tensor(shape, DType::f32, fmt::format("{}", i)));
          run.bind(weights[i], testing::random_tensor(shape, DType::bf16, "before"));
        }
        round_to_weights(builder, masters, weights);
        run.run();
        Results results;
        for (const Value weight : weights) results.push_back(testing::as_doubles(run[weight]));
        return results;
      },
      {});
}

RC_GTEST_PROP(CopyKept, TheDevicesKernelsAgreeWithThePlainOnes, ()) {
  const std::vector<int64_t> sizes = any_sizes();
  const auto scale =
      *rc::gen::element(std::optional<double>(), std::optional(0.5), std::optional(std::nan("")));
  expect_results_agree(
      [&](const std::optional<Emulation>& emulation) {
        Program program;
        Builder builder(program);
        Runtime runtime = runtime_of(emulation);
        testing::ProgramRun run(program, runtime);
        std::optional<Value> factor;
        if (scale) {
          factor = builder.input("scale", {{1}, DType::f64, {}});
          const Tensor number({1}, DType::f64);
          *number.data<double>() = *scale;
          run.bind(*factor, number);
        }
        std::vector<Value> sources, targets;
        Results expected;
        for (size_t i = 0; i < sizes.size(); ++i) {
          const Spec spec{{sizes[i]}, DType::f32, {}};
          const Tensor source = testing::random_tensor(spec.shape, DType::f32, "source");
          const Tensor target = testing::random_tensor(spec.shape, DType::f32, "target");
          const bool copies = !scale || !std::isnan(*scale);
          expected.push_back(testing::as_doubles(copies ? source : target));
          sources.push_back(builder.state(fmt::format("source{}", i), spec));
          targets.push_back(builder.state(fmt::format("target{}", i), spec));
          run.bind(sources[i], source);
          run.bind(targets[i], target);
        }
        copy_kept(builder, sources, targets, factor);
        run.run();
        Results results;
        for (const Value target : targets) results.push_back(testing::as_doubles(run[target]));
        EXPECT_EQ(results, expected);
        return results;
      },
      {});
}

RC_GTEST_PROP(RunningSum, TheDevicesKernelsAgreeWithThePlainOnes, ()) {
  const int64_t size = *any_size();
  const bool whole = *rc::gen::arbitrary<bool>();
  const DType dtype = *rc::gen::element(DType::i32, DType::f32, DType::f64);
  expect_results_agree(
      [&](const std::optional<Emulation>& emulation) {
        Program program;
        Builder builder(program);
        Runtime runtime = runtime_of(emulation);
        testing::ProgramRun run(program, runtime);
        const Shape shape{size}, of_sum{whole ? 1 : size};
        const Value sum = builder.state("sum", {of_sum, DType::f64, {}});
        const Value value = builder.input("value", {shape, dtype, {}});
        add_to_sum(builder, sum, value);
        Tensor values(shape, dtype);
        if (dtype != DType::i32) {
          values = testing::random_tensor(shape, dtype, "value");
        } else {
          std::iota(values.data<int32_t>(), values.data<int32_t>() + size, -5);
        }
        run.bind(sum, testing::random_tensor(of_sum, DType::f64, "sum"));
        run.bind(value, values);
        run.run();
        run.run();
        return Results{testing::as_doubles(run[sum])};
      },
      {1e-12, 1e-12});
}

}  // namespace
}  // namespace tessera
