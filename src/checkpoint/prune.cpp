#include "checkpoint/prune.h"

#include <string>

#include "base/error.h"
#include "checkpoint/checkpoint_folder.h"

namespace tessera {

std::vector<fs::path> prune_checkpoints(const fs::path& directory, const KeepRule& rule) {
  TESSERA_CHECK(rule.newest >= 0 && rule.multiples_of >= 0, "a rule that keeps {} and 1 in {}",
                rule.newest, rule.multiples_of);
  std::vector<fs::path> removed;
  if (!path_exists(directory)) return removed;
  const CheckpointLock lock(directory);
  remove_stale_checkpoints(directory);
  if (rule.newest == 0) return removed;
  const std::vector<FoundCheckpoint> complete = list_checkpoints(directory).complete;
  const auto count = static_cast<int64_t>(complete.size());
  std::string problem;
  for (int64_t i = 0; i + rule.newest < count; ++i) {
    const FoundCheckpoint& checkpoint = complete[static_cast<size_t>(i)];
    if (rule.multiples_of > 0 && checkpoint.step % rule.multiples_of == 0) continue;
    try {
      discard_checkpoint(checkpoint.path, checkpoint.step);
      removed.push_back(checkpoint.path);
    } catch (const Error& error) {
      if (problem.empty()) problem = error.what();
    }
  }
  if (!problem.empty()) throw Error(problem);
  return removed;
}

}  // namespace tessera
