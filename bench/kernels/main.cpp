#include <benchmark/benchmark.h>

#include "base/denormals.h"
#include "benchmarks.h"

int main(int argc, char** argv) {
  // As the program does, before any thread is started; how its threads wait, scripts/bench sets.
  tessera::flush_denormals();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  tessera::register_operations();
  tessera::register_products();
  tessera::register_optimizer();
  tessera::register_muon();
  tessera::register_quantisation();
  tessera::register_prepared_rows();
  tessera::register_checkpoints();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
