#include <cfenv>
#include <string>

#include <benchmark/benchmark.h>
#include <omp.h>

#include "base/denormals.h"
#include "benchmarks.h"
#include "hardware/random_fill.h"
#include "state/adamw.h"

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

/// One matrix with masters and gradients of random numbers, and moments of zero.
class Parameters {
 public:
  Parameters(DType dtype, double gradient_deviation)
      : specs_{{.name = "weight", .shape = {kParameters / 1024, 1024}, .dtype = dtype}},
        store_(pool_, specs_) {
    for (const ParameterState& state : store_.parameters()) {
      fill_normal(state.master, "master", 0.02, omp_get_max_threads());
      fill_normal(state.gradient, "gradient", gradient_deviation, omp_get_max_threads());
    }
    store_.masters_to_weights();
  }
  const ParameterStore& store() const { return store_; }

 private:
  MemoryPool pool_;
  std::vector<ParameterSpec> specs_;
  ParameterStore store_;
};

void adamw(benchmark::State& state, DType dtype, double deviation) {
  const Parameters parameters(dtype, deviation);
  AdamWStep step{.learning_rate = 1e-4};
  const auto run = [&] {
    adamw_step(parameters.store(), {}, step, omp_get_max_threads());
    ++step.step;
  };
  run();  // the moments are no longer zero
  for (auto iteration : state) run();
  state.SetItemsProcessed(state.iterations() * kParameters);
}

/// What AdamW costs where gradients vanish: their squares are denormal numbers.
void adamw_vanished(benchmark::State& state, bool flush) {
  constexpr double kDeviation = 1e-20;
  if (flush) {
    adamw(state, DType::f32, kDeviation);
  } else {
    const DenormalsKept kept;
    adamw(state, DType::f32, kDeviation);
  }
}

void gradient_norm_benchmark(benchmark::State& state) {
  const Parameters parameters(DType::bf16, kUsualDeviation);
  for (auto iteration : state) {
    benchmark::DoNotOptimize(gradient_norm(parameters.store(), omp_get_max_threads()));
  }
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
        [dtype](benchmark::State& state) { adamw(state, dtype, kUsualDeviation); });
  }
  add("adamw_vanished/flushed", [](benchmark::State& state) { adamw_vanished(state, true); });
  add("adamw_vanished/kept", [](benchmark::State& state) { adamw_vanished(state, false); });
  add("gradient_norm", gradient_norm_benchmark);
}

}  // namespace tessera
