#include "ops/update/device_table.h"

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"

namespace tessera {
namespace {

/// A rank's tables in pinned memory, found by their bytes. A stream may yet copy one: none changes.
class PinnedTables {
 public:
  const void* find(Accelerator& accelerator, std::span<const std::byte> table) {
    const std::string_view bytes(reinterpret_cast<const char*>(table.data()), table.size());
    auto found = tables_.find(bytes);
    if (found == tables_.end()) {
      found = tables_.emplace(bytes, accelerator.allocate_host(std::ssize(table))).first;
      std::memcpy(found->second->address(), bytes.data(), bytes.size());
    }
    return found->second->address();
  }

 private:
  std::map<std::string, std::unique_ptr<DeviceMemory>, std::less<>> tables_;
};

}  // namespace

void copy_to_workspace(const Execution& execution, std::span<const std::byte> table) {
  TESSERA_CHECK(table.size() <= execution.workspace.size(), "a table of {} bytes for {}",
                table.size(), execution.workspace.size());
  if (table.empty()) return;
  Runtime& runtime = execution.runtime;
  const void* const pinned = runtime.cache<PinnedTables>().find(*runtime.accelerator(), table);
  execution.stream->copy(execution.workspace.data(), pinned, std::ssize(table));
}

}  // namespace tessera
