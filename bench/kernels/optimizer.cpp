#include <benchmark/benchmark.h>
#include <omp.h>

#include "hardware/random_fill.h"
#include "state/adamw.h"

namespace tessera {
namespace {

constexpr int64_t kParameters = int64_t{1} << 24;

/// One matrix with masters, gradients and moments of random numbers.
class Parameters {
 public:
  explicit Parameters(DType dtype)
      : specs_{{.name = "weight", .shape = {kParameters / 1024, 1024}, .dtype = dtype}},
        store_(pool_, specs_) {
    for (const ParameterState& state : store_.parameters()) {
      fill_normal(state.master, "master", 0.02, omp_get_max_threads());
      fill_normal(state.gradient, "gradient", 0.01, omp_get_max_threads());
    }
    store_.masters_to_weights();
  }
  const ParameterStore& store() const { return store_; }

 private:
  MemoryPool pool_;
  std::vector<ParameterSpec> specs_;
  ParameterStore store_;
};

void adamw(benchmark::State& state, DType dtype) {
  const Parameters parameters(dtype);
  AdamWStep step{.learning_rate = 1e-4};
  for (auto iteration : state) {
    adamw_step(parameters.store(), {}, step, omp_get_max_threads());
    ++step.step;
  }
  state.SetItemsProcessed(state.iterations() * kParameters);
}

void gradient_norm_benchmark(benchmark::State& state) {
  const Parameters parameters(DType::bf16);
  for (auto iteration : state) {
    benchmark::DoNotOptimize(gradient_norm(parameters.store(), omp_get_max_threads()));
  }
  state.SetItemsProcessed(state.iterations() * kParameters);
}

const bool kRegistered = [] {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    benchmark::RegisterBenchmark(("adamw/" + std::string(dtype_name(dtype))).c_str(),
                                 [dtype](benchmark::State& state) { adamw(state, dtype); })
        ->UseRealTime()
        ->Unit(benchmark::kMicrosecond);
  }
  benchmark::RegisterBenchmark("gradient_norm", gradient_norm_benchmark)
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
  return true;
}();

}  // namespace
}  // namespace tessera
