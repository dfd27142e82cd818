#include "checkpoint/find_checkpoint.h"

#include "base/error.h"
#include "base/links.h"
#include "checkpoint/checkpoint_manifest.h"

namespace tessera {
namespace {

/// Returns name_problem(); empty if the manifest cannot be read, which its reader reports.
std::string problem_of_name(const fs::path& checkpoint) {
  try {
    return name_problem(checkpoint, read_checkpoint_manifest(checkpoint).state.step);
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

bool names_checkpoint(const fs::path& path) {
  return path_exists(path / kCheckpointManifestName) || step_of_name(path).has_value();
}

fs::path checkpoints_folder(const fs::path& path) {
  if (!is_folder(path)) {
    throw Error(
        "{} is not a folder{}; give a checkpoint, such as step-00000100, or the folder that "
        "holds a run's checkpoints",
        path.string(), dangling_link_text(path));
  }
  return is_folder(path / kCheckpointsName) ? path / kCheckpointsName : path;
}

ChosenCheckpoint find_checkpoint(const fs::path& path) {
  if (path_exists(path / kCheckpointManifestName)) {
    if (const std::string problem = problem_of_name(path); !problem.empty()) throw Error(problem);
    return {path, {}};
  }
  const fs::path directory = checkpoints_folder(path);
  LatestCheckpoint latest = latest_checkpoint(directory);
  if (latest.path) return {*latest.path, std::move(latest.newer_broken)};
  std::string problems;
  for (const BrokenCheckpoint& broken : latest.newer_broken) problems += "\n  " + broken.problem;
  throw Error("{} is neither a checkpoint nor a folder that holds a complete one{}{}",
              directory.string(), dangling_link_text(path / kCheckpointsName), problems);
}

void warn_of_newer(const ChosenCheckpoint& chosen, const Logger& logger) {
  for (const BrokenCheckpoint& broken : chosen.newer_broken) {
    logger.warn("{} is newer but broken: {}; {} is used in its place", broken.path.string(),
                broken.problem, chosen.path.string());
  }
}

std::string older_checkpoint_advice(const fs::path& checkpoint) {
  const std::optional<int64_t> step = step_of_name(checkpoint);
  if (!step) return "";
  const fs::path parent = canonical_path(checkpoint).parent_path();
  std::string advice = "; there is no complete checkpoint before it";
  for (const FoundCheckpoint& found : list_checkpoints(parent).complete) {
    if (found.step >= *step) break;
    advice = fmt::format("; the newest complete one before it is {}", found.path.string());
  }
  return advice;
}

}  // namespace tessera
