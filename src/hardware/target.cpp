#include "hardware/target.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>

namespace tessera {
namespace {

MatrixInstructions instructions_of(const Processor& processor) {
  const auto has = [&](std::initializer_list<std::string_view> features) {
    return std::ranges::all_of(features, [&](std::string_view feature) {
      return std::ranges::find(processor.features, feature) != processor.features.end();
    });
  };
  // "avx512bw" stands for everything that servers since Skylake have. The first processors with
  // AVX-512 lack it, and products do not use their AVX-512.
  if (!has({"avx512f", "avx512bw"})) return MatrixInstructions::avx2;
  if (!has({"avx512_bf16"})) return MatrixInstructions::avx512;
  if (has({"amx_tile", "amx_int8", "amx_bf16"})) return MatrixInstructions::amx;
  // A virtual machine without AMX on one of Intel's processors that has it: see
  // host_instructions().
  const bool intel = processor.name.find("Intel") != std::string::npos;
  if (intel && has({"avx512_fp16"})) return MatrixInstructions::avx512;
  return MatrixInstructions::avx512_bf16;
}

}  // namespace

Target target_of(const Processor& processor) {
  return {.threads = processor.threads,
          .instructions = instructions_of(processor),
          .caches = {.first_level = processor.first_level_cache,
                     .second_level = processor.second_level_cache,
                     .last_level = processor.last_level_cache}};
}

}  // namespace tessera
