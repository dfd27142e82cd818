#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <omp.h>

#include "base/progress.h"
#include "base/quantile.h"
#include "base/words.h"
#include "benchmarks.h"
#include "hardware/memory_rate.h"
#include "hardware/random_fill.h"
#include "ops/collective/quantise.h"
#include "ops/host_target.h"

namespace tessera {
namespace {

constexpr int64_t kElements = int64_t{1} << 25;

/// A tensor of random numbers, its piece, and what runs on them.
class QuantisationRun {
 public:
  QuantisationRun(const QuantisedFormat& format, DType dtype)
      : runtime_(host_target(omp_get_max_threads())),
        format_(format),
        values_({kElements}, dtype),
        piece_({quantised_bytes(format, kElements)}, DType::u8),
        error_({kElements}, DType::f32) {
    fill_normal(values_, "values", 0.02, omp_get_max_threads());
    error_.fill_zero();
    quantise();
  }

  void quantise() { tessera::quantise(execution(), format_, values_, piece_); }
  void quantise_with_feedback() {
    tessera::quantise_with_feedback(execution(), format_, values_, {.error = error_}, piece_);
  }
  void dequantise() { tessera::dequantise(execution(), format_, piece_, values_); }
  void dequantise_add() { tessera::dequantise_add(execution(), format_, piece_, error_); }

  int64_t value_bytes() const { return values_.bytes(); }
  int64_t piece_bytes() const { return piece_.bytes(); }

 private:
  Execution execution() {
    return {.runtime = runtime_, .inputs = {}, .outputs = {}, .workspace = {}, .name = "values"};
  }

  Runtime runtime_;
  QuantisedFormat format_;
  Tensor values_, piece_, error_;
};

/// One of its functions, which reads or writes tensors of that many elements `accesses` times.
struct QuantisationKind {
  const char* name;
  void (QuantisationRun::*run)();
  int accesses;
  bool floats_only;
};
constexpr QuantisationKind kKinds[] = {
    {"quantise", &QuantisationRun::quantise, 1, false},
    {"quantise_with_feedback", &QuantisationRun::quantise_with_feedback, 3, true},
    {"dequantise", &QuantisationRun::dequantise, 1, false},
    {"dequantise_add", &QuantisationRun::dequantise_add, 2, true}};

/// Reports the bytes that are read and written a second, and what share that is of the rate of
/// copies of as many bytes. Both are medians, taken by turns.
void quantisation_benchmark(benchmark::State& state, const QuantisationKind& kind,
                            const QuantisedFormat& format, DType dtype) {
  QuantisationRun run(format, dtype);
  const int64_t bytes = kind.accesses * run.value_bytes() + run.piece_bytes();
  const auto copy = memory_loop(MemoryKernel::copy, bytes, omp_get_max_threads());
  std::vector<double> rates, copies;
  for (auto iteration : state) {
    const Stopwatch watch;
    (run.*kind.run)();
    const double seconds = watch.seconds();
    state.SetIterationTime(seconds);
    rates.push_back(static_cast<double>(bytes) / seconds);
    copies.push_back(copy());
  }
  const double median = quantile(rates, 0.5);
  state.counters["bytes"] = median;
  state.counters["of_copy"] = median / quantile(copies, 0.5);
}

}  // namespace

void register_quantisation() {
  for (const QuantisationKind& kind : kKinds) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      if (kind.floats_only && dtype != DType::f32) continue;
      for (const QuantisedType type : {QuantisedType::int8, QuantisedType::int4}) {
        for (const int64_t block : {256, 2048}) {
          const QuantisedFormat format{type, block};
          benchmark::RegisterBenchmark(
              fmt::format("{}/{}/{}/{}", kind.name, dtype_name(dtype), word(type), block).c_str(),
              [=](benchmark::State& state) { quantisation_benchmark(state, kind, format, dtype); })
              ->UseManualTime()
              ->Unit(benchmark::kMicrosecond);
        }
      }
    }
  }
}

}  // namespace tessera
