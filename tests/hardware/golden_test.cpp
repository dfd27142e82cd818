#include <gtest/gtest.h>

#include "hardware/hardware_file.h"

namespace tessera {
namespace {

/// A file of version 1 as Tessera 0.1.0 wrote it, which later ones read: `tessera bench all
/// --threads 2 --m 128 --n 192 --k 64 --precision bf16 fp32 --seconds 1 --sizes 64KiB,2MiB`. It is
/// kept as it was written; a new version of the format gets a file of its own.
const fs::path kFile = fs::path(TESSERA_SOURCE) / "tests/fixtures/golden/hardware.json";

TEST(HardwareFile, OfAnEarlierProgramIsReadInFull) {
  const Hardware read = read_hardware(kFile);
  const Processor processor{.name = "Intel(R) Xeon(R) Processor (family 6, model 207)",
                            .features = {"avx2", "fma", "avx_vnni", "avx512f", "avx512bw",
                                         "avx512_vnni", "avx512_bf16", "avx512_fp16"},
                            .first_level_cache = 49152,
                            .second_level_cache = 2097152,
                            .last_level_cache = 272629760,
                            .threads = 2};
  EXPECT_EQ(read.processor, processor);
  using enum GemmLayout;
  const std::vector<GemmRate> gemms{
      {DType::bf16, forward, 1024, 1024, 1024, 27484081003.082527, 26002421857.98024},
      {DType::bf16, forward, 128, 192, 64, 134578038267.78897, 121346577429.74521},
      {DType::bf16, input_gradient, 128, 192, 64, 138146238636.86267, 127156635272.2422},
      {DType::bf16, weight_gradient, 128, 192, 64, 131028323892.03598, 122578342360.59695},
      {DType::f32, forward, 1024, 1024, 1024, 41305695538.10267, 38345222028.87373},
      {DType::f32, forward, 128, 192, 64, 198368520620.50702, 174728691643.2916},
      {DType::f32, input_gradient, 128, 192, 64, 241707156372.15823, 222788227534.8911},
      {DType::f32, weight_gradient, 128, 192, 64, 205896674589.18146, 189115765268.1651}};
  EXPECT_EQ(read.gemms, gemms);
  using enum MemoryKernel;
  const std::vector<MemoryRate> memory{{copy, 65536, 383984436665.9562, 56465623361.56416},
                                       {scale, 65536, 250342222230.51196, 13428665062.343246},
                                       {triad, 65536, 51307752545.027405, 38884272997.03264},
                                       {update, 65536, 341775456192.14307, 20134588093.53936},
                                       {copy, 2097152, 136758286691.87497, 10492687570.095486},
                                       {scale, 2097152, 4197969877.195261, 2797148802.2490277},
                                       {triad, 2097152, 156291548665.9711, 137030841610.03658},
                                       {update, 2097152, 208666217535.59708, 104732386948.6489}};
  EXPECT_EQ(read.memory, memory);
  // What `train` and `trace summarize` take from it.
  EXPECT_EQ(read.gemm_peak(DType::bf16), 27484081003.082527);
  EXPECT_EQ(read.gemm_peak(DType::f32), 41305695538.10267);
  EXPECT_EQ(read.memory_bandwidth(), 208666217535.59708);
}

}  // namespace
}  // namespace tessera
