#include "base/usable_memory.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>
#include <unistd.h>

#include "base/control_groups.h"
#include "base/process_memory.h"
#include "base/text.h"

namespace tessera {

std::string UsableMemory::text() const {
  if (limited_by.empty()) return fmt::format("this machine has {}", format_bytes(bytes));
  return fmt::format("this process's control group may have {} ({})", format_bytes(bytes),
                     limited_by);
}

UsableMemory usable_memory(const fs::path& root) {
  const auto machine = kibibytes_line(root / "proc/meminfo", "MemTotal:");
  UsableMemory memory{
      .bytes = machine ? *machine : ::sysconf(_SC_PHYS_PAGES) * ::sysconf(_SC_PAGESIZE),
      .limited_by = {}};
  const auto group = memory_of_control_groups(root);
  if (group && group->value < memory.bytes) memory = {group->value, group->file};
  return memory;
}

int64_t available_memory(const fs::path& root) {
  constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();
  return std::min(kibibytes_line(root / "proc/meminfo", "MemAvailable:").value_or(kUnknown),
                  free_memory_of_control_groups(root).value_or(kUnknown));
}

}  // namespace tessera
