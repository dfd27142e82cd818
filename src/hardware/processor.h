#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace tessera {

/// The processor that something was measured on, and how many of its threads worked.
struct Processor {
  std::string name;  ///< as the system calls it, on x86 with family and model
  /// Those of its instruction sets that matrix products and element-wise passes can use, by the
  /// system's names: "avx512_bf16", "amx_tile".
  std::vector<std::string> features;
  /// Bytes of a core's first-level data cache, its second-level cache, and all last-level caches of
  /// the machine together; 0 where the system does not tell.
  int64_t first_level_cache = 0;
  int64_t second_level_cache = 0;
  int64_t last_level_cache = 0;
  int threads = 1;

  bool operator==(const Processor&) const = default;
};

/// This machine's processor with so many threads at work.
Processor this_processor(int threads);

/// The same from the text of /proc/cpuinfo, without caches. Arm's has no name but numbers of the
/// maker, the part and the variant, which then stand for it.
Processor processor_from_cpuinfo(std::string_view text, int threads);

/// "AMD EPYC, 2 threads (avx2 avx512f avx512_bf16)".
std::string describe(const Processor& processor);

/// Whether what was measured on the one holds on the other: the name, the features and the number
/// of threads at work are the same.
bool same_processor(const Processor& a, const Processor& b);

/// The members of Processor under the names that hardware files have for them.
nlohmann::ordered_json processor_json(const Processor& processor);

}  // namespace tessera
