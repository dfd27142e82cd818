#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "program/target.h"

namespace tessera {

/// The processor that something was measured on, and the number of its threads that worked.
struct Processor {
  std::string name;  ///< the system's name for it, on x86 with family and model
  /// The instruction sets of the processor that matrix products and element-wise passes can use,
  /// under the system's names: "avx512_bf16", "amx_tile".
  std::vector<std::string> features;
  /// The bytes of a core's first-level data cache, of its second-level cache, and of all last-level
  /// caches of the machine together. 0 if the system does not report them.
  int64_t first_level_cache = 0;
  int64_t second_level_cache = 0;
  int64_t last_level_cache = 0;
  int threads = 1;

  bool operator==(const Processor&) const = default;
};

/// Returns this machine's processor with `threads` threads at work.
Processor this_processor(int threads);

/// Returns the processor that the text of /proc/cpuinfo describes, without caches. Arm's text has
/// no name. The numbers of the maker, the part and the variant then serve as the name.
Processor processor_from_cpuinfo(std::string_view text, int threads);

/// Returns a text such as "AMD EPYC, 2 threads (avx2 avx512f avx512_bf16)".
std::string describe(const Processor& processor);

/// Returns true if measurements on one processor hold on the other one: the name, the features and
/// the number of threads at work are the same.
bool same_processor(const Processor& first, const Processor& second);

/// Returns the members of Processor under their names in hardware files.
nlohmann::ordered_json processor_json(const Processor& processor);

/// Returns the target that programs on this processor are planned for, as host_target() would
/// return it there. Its instructions are the most capable set that oneDNN uses among the features.
Target target_of(const Processor& processor);

}  // namespace tessera
