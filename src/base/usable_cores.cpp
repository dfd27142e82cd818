#include "base/usable_cores.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include <fmt/format.h>

#include "base/affinity.h"
#include "base/control_groups.h"

namespace tessera {

std::string UsableCores::text() const {
  std::string text = fmt::format("{} {}", count, count == 1 ? "core" : "cores");
  if (!limited_by.empty()) text += fmt::format(" ({})", limited_by);
  return text;
}

UsableCores usable_cores(const fs::path& root) {
  UsableCores cores{.count = static_cast<int>(cores_at_start().size()), .limited_by = {}};
  if (cores.count == 0) cores.count = static_cast<int>(std::thread::hardware_concurrency());
  cores.count = std::max(1, cores.count);
  const auto group = cores_of_control_groups(root);
  if (group && std::ceil(group->value) < cores.count) {
    cores = {static_cast<int>(std::ceil(group->value)), group->file};
  }
  return cores;
}

}  // namespace tessera
