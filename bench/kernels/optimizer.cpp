#include <cfenv>
#include <functional>
#include <string>

#include <benchmark/benchmark.h>
#include <omp.h>

#include "base/denormals.h"
#include "benchmarks.h"
#include "ops/update/adamw.h"
#include "ops/update/sum_of_squares.h"
#include "update_run.h"

namespace tessera {
namespace {

constexpr int64_t kParameters = int64_t{1} << 24;

constexpr double kUsualDeviation = 0.01;  // of gradients

/// Lets OpenMP's threads compute with denormal numbers while it lives.
class DenormalsKept {
 public:
  DenormalsKept() {
#pragma omp parallel
    std::fesetenv(FE_DFL_ENV);
  }
  ~DenormalsKept() {
#pragma omp parallel
    flush_denormals();
  }
  DenormalsKept(const DenormalsKept&) = delete;
  DenormalsKept& operator=(const DenormalsKept&) = delete;
};

/// One matrix with masters and gradients of random numbers, and moments of zero, and a program of
/// one operation on it.
class OptimizerRun : public UpdateRun {
 public:
  OptimizerRun(DType dtype, double gradient_deviation,
               const std::function<void(Builder&, const AdamWUnit&)>& write)
      : UpdateRun([&](Builder& builder) {
          const Spec wide{{kParameters}, accumulation_dtype(dtype), {}};
          AdamWUnit unit{.gradient = builder.state("gradient", wide),
                         .first_moment = builder.state("first_moment", wide),
                         .second_moment = builder.state("second_moment", wide),
                         .master = builder.state("master", wide),
                         .weight = {}};
          if (wide.dtype != dtype) unit.weight = builder.state("weight", {wide.shape, dtype, {}});
          write(builder, unit);
        }) {
    fill("master", 0.02);
    fill("gradient", gradient_deviation);
  }
};

constexpr Section kAll{.unit = 0, .begin = 0, .end = kParameters};

void adamw_benchmark(benchmark::State& state, DType dtype, double deviation) {
  OptimizerRun optimizer(dtype, deviation, [](Builder& builder, const AdamWUnit& unit) {
    const Spec scalar{{1}, DType::f64, {}};
    const AdamWInputs inputs{.scale = builder.state("scale", scalar),
                             .learning_rate = builder.state("learning_rate", scalar),
                             .step = builder.state("step", scalar)};
    adamw(builder, inputs, {&unit, 1}, {{.section = kAll}}, {});
  });
  optimizer.set("scale", 1);
  optimizer.set("learning_rate", 1e-4);
  double step = 0;
  const auto run = [&] {
    optimizer.set("step", ++step);
    optimizer.run();
  };
  run();  // the moments are no longer zero
  for (auto iteration : state) run();
  state.SetItemsProcessed(state.iterations() * kParameters);
}

/// What AdamW costs where gradients vanish: their squares are denormal numbers.
void adamw_vanished(benchmark::State& state, bool flush) {
  constexpr double kDeviation = 1e-20;
  if (flush) {
    adamw_benchmark(state, DType::f32, kDeviation);
  } else {
    const DenormalsKept kept;
    adamw_benchmark(state, DType::f32, kDeviation);
  }
}

void sum_of_squares_benchmark(benchmark::State& state) {
  OptimizerRun optimizer(DType::bf16, kUsualDeviation, [](Builder& builder, const AdamWUnit& unit) {
    const Value units[] = {unit.gradient};
    builder.output(sum_of_squares(builder, units, {kAll}));
  });
  for (auto iteration : state) optimizer.run();
  state.SetItemsProcessed(state.iterations() * kParameters);
}

template <typename Function>
void add(const std::string& name, const Function& function) {
  benchmark::RegisterBenchmark(name.c_str(), function)
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

}  // namespace

void register_optimizer() {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    add("adamw/" + std::string(dtype_name(dtype)),
        [dtype](benchmark::State& state) { adamw_benchmark(state, dtype, kUsualDeviation); });
  }
  add("adamw_vanished/flushed", [](benchmark::State& state) { adamw_vanished(state, true); });
  add("adamw_vanished/kept", [](benchmark::State& state) { adamw_vanished(state, false); });
  add("sum_of_squares", sum_of_squares_benchmark);
}

}  // namespace tessera
