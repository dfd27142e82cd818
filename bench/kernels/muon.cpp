#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <omp.h>

#include "benchmarks.h"
#include "hardware/random_fill.h"
#include "ops/gemm/gemm_plan.h"
#include "ops/gemm/symmetric_product.h"
#include "ops/host_target.h"
#include "ops/update/muon_measures.h"
#include "ops/update/muon_passes.h"
#include "ops/update/newton_schulz.h"
#include "update_run.h"

namespace tessera {
namespace {

/// A program of Muon's operations on states of random numbers.
class MuonRun : public UpdateRun {
 public:
  explicit MuonRun(const std::function<void(Builder&)>& write) : UpdateRun(write) {
    fill_all(0.02);
  }
};

/// Counts the FLOPs of products: those of the symmetric ones as half of the full ones'.
void newton_schulz_benchmark(benchmark::State& state, const Shape& shape, DType dtype) {
  MuonRun muon([&](Builder& builder) {
    const Value matrix = builder.state("matrix", {shape, dtype, {}});
    builder.output(newton_schulz(builder, {{matrix}}, 5).front());
  });
  muon.run();
  for (auto iteration : state) muon.run();
  const auto n = static_cast<double>(std::min(shape.dim(-1), shape.dim(-2)));
  const auto m = static_cast<double>(std::max(shape.dim(-1), shape.dim(-2)));
  const double count = shape.rank() == 3 ? static_cast<double>(shape[0]) : 1;
  const double flops = 5 * count * (n * n * m + n * n * n + 2 * n * n * m);
  state.counters["FLOP/s"] =
      benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
}

/// Memory aligned to cache lines.
Tensor random_matrix(int64_t rows, int64_t columns, DType dtype, const std::string& name) {
  Tensor tensor({rows, columns}, dtype);
  fill_normal(tensor, name, 0.02, omp_get_max_threads());
  return tensor;
}

/// A Aᵀ of a square A, as a full product or as SymmetricProduct computes it.
void gram_benchmark(benchmark::State& state, int64_t n, DType dtype, bool symmetric) {
  const int threads = omp_get_max_threads();
  Runtime runtime(host_target(threads));
  const Tensor a = random_matrix(n, n, dtype, "a");
  const Tensor c = random_matrix(n, n, dtype, "c");
  const SymmetricSize size{n, n, dtype, threads};
  const GemmShape full{.m = n,
                       .n = n,
                       .k = n,
                       .input = dtype,
                       .output = dtype,
                       .transpose_b = true,
                       .threads = threads};
  const int64_t bytes = symmetric ? SymmetricProduct::workspace_bytes(runtime.target(), size)
                                  : gemm_workspace_bytes(runtime.target(), full);
  const Tensor workspace({bytes / 4 + 1}, DType::f32);
  const SymmetricProduct half(runtime, size);
  const Gemm& product = prepare_gemm(runtime, full);
  const auto run = [&] {
    if (!symmetric) return product.run(a.raw(), a.raw(), c.raw(), workspace.raw());
    if (dtype == DType::bf16) {
      half.run(a.data<BFloat16>(), c.data<BFloat16>(), workspace.raw());
    } else {
      half.run(a.data<float>(), c.data<float>(), workspace.raw());
    }
  };
  run();
  for (auto iteration : state) run();
  state.counters["full FLOP/s"] =
      benchmark::Counter(full.flops(), benchmark::Counter::kIsIterationInvariantRate);
}

constexpr int64_t kSide = 4096;  // of the matrix that the passes go over

/// The two passes over memory, without what lies between them.
void momentum_benchmark(benchmark::State& state, DType dtype) {
  const DType wide = accumulation_dtype(dtype);
  MuonRun muon([&](Builder& builder) {
    const MuonMomentum matrix[] = {{builder.state("gradient", {{kSide, kSide}, wide, {}}),
                                    builder.state("momentum", {{kSide, kSide}, wide, {}})}};
    const Value scale = builder.state("scale", {{1}, DType::f64, {}});
    builder.output(muon_momentum(builder, scale, matrix, 0.95, dtype).front());
  });
  muon.set("scale", 1);
  muon.run();  // its results have memory then
  for (auto iteration : state) muon.run();
  state.SetBytesProcessed(state.iterations() * kSide * kSide *
                          (3 * dtype_size(wide) + dtype_size(dtype)));
}

void update_benchmark(benchmark::State& state, DType dtype) {
  const DType wide = accumulation_dtype(dtype);
  MuonRun muon([&](Builder& builder) {
    MuonMatrix matrix{.update = builder.state("update", {{kSide, kSide}, dtype, {}}),
                      .master = builder.state("master", {{kSide, kSide}, wide, {}}),
                      .weight = {}};
    if (wide != dtype) matrix.weight = builder.state("weight", {{kSide, kSide}, dtype, {}});
    const Value scale = builder.state("scale", {{1}, DType::f64, {}});
    const Value rate = builder.state("rate", {{1}, DType::f64, {}});
    muon_update(builder, {scale, rate}, {&matrix, 1}, 0.1);
  });
  muon.set("scale", 1);
  muon.set("rate", 1e-4);
  muon.run();
  for (auto iteration : state) muon.run();
  state.SetBytesProcessed(state.iterations() * kSide * kSide *
                          (2 * dtype_size(wide) + (wide == dtype ? 1 : 2) * dtype_size(dtype)));
}

void measures_benchmark(benchmark::State& state, DType dtype) {
  MuonRun muon([&](Builder& builder) {
    const MeasuredUpdate update[] = {{builder.state("update", {{kSide, kSide}, dtype, {}})}};
    builder.output(muon_measures(builder, update));
  });
  muon.run();
  for (auto iteration : state) muon.run();
}

template <typename Function>
void add_timed(const std::string& name, const Function& function) {
  benchmark::RegisterBenchmark(name.c_str(), function)
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

}  // namespace

void register_muon() {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const std::string_view type = dtype_name(dtype);
    for (const int64_t n : {128, 256, 512, 1024, 2048, 4096}) {
      add_timed(fmt::format("newton_schulz/square/{}/{}", n, type), [=](benchmark::State& state) {
        newton_schulz_benchmark(state, {n, n}, dtype);
      });
      for (const bool symmetric : {false, true}) {
        add_timed(fmt::format("gram/{}/{}/{}", symmetric ? "symmetric" : "full", n, type),
                  [=](benchmark::State& state) { gram_benchmark(state, n, dtype, symmetric); });
      }
    }
    for (const int64_t n : {128, 256, 512}) {
      add_timed(fmt::format("newton_schulz/experts_of/{}/{}", n, type),
                [=](benchmark::State& state) {
                  newton_schulz_benchmark(state, {16, n, 2 * n}, dtype);
                });
    }
    add_timed(fmt::format("newton_schulz/wide_1024_4096/{}", type), [=](benchmark::State& state) {
      newton_schulz_benchmark(state, {1024, 4096}, dtype);
    });
    add_timed(fmt::format("newton_schulz/tall_4096_1024/{}", type), [=](benchmark::State& state) {
      newton_schulz_benchmark(state, {4096, 1024}, dtype);
    });
    add_timed(fmt::format("muon_momentum/{}", type),
              [=](benchmark::State& state) { momentum_benchmark(state, dtype); });
    add_timed(fmt::format("muon_update/{}", type),
              [=](benchmark::State& state) { update_benchmark(state, dtype); });
    add_timed(fmt::format("muon_measures/{}", type),
              [=](benchmark::State& state) { measures_benchmark(state, dtype); });
  }
}

}  // namespace tessera
