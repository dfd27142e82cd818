#include "checkpoint/save.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/strict_json.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_manifest.h"
#include "checkpoint/parallel_tasks.h"
#include "checkpoint/partial_folder.h"

namespace tessera {
namespace {

constexpr std::string_view kExtension = ".safetensors";

/// A safetensors file to write: its name and the indices of its tensors.
struct PlannedFile {
  std::string group;
  std::string name;
  std::vector<size_t> tensors;
};

void check_group(const std::string& group) {
  const bool plain = !group.empty() && std::all_of(group.begin(), group.end(), [](char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= '0' && letter <= '9') || letter == '_';
  });
  TESSERA_CHECK(plain, "a group of tensors named {}; it becomes a file's name", in_quotes(group));
}

/// Returns the files of each group, in order of the group's first appearance. A group is split
/// where a file would exceed the limit.
std::vector<PlannedFile> plan_files(std::span<const GroupStream> tensors, int64_t limit) {
  std::vector<std::string> groups;
  for (const GroupStream& item : tensors) {
    if (std::find(groups.begin(), groups.end(), item.group) != groups.end()) continue;
    check_group(item.group);
    groups.push_back(item.group);
  }
  std::vector<PlannedFile> files;
  for (const std::string& group : groups) {
    const size_t first = files.size();
    int64_t bytes = 0;
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].group != group) continue;
      const int64_t size = tensors[i].stream.bytes();
      if (files.size() == first || (bytes > 0 && size > limit - bytes)) {
        files.push_back({group, "", {}});
        bytes = 0;
      }
      files.back().tensors.push_back(i);
      bytes += size;
    }
    const size_t count = files.size() - first;
    for (size_t i = 0; i < count; ++i) {
      const std::string part = count == 1 ? "" : fmt::format("-{:05}-of-{:05}", i + 1, count);
      files[first + i].name = group + part + std::string(kExtension);
    }
  }
  return files;
}

void check_tensors(std::span<const GroupStream> tensors) {
  std::set<std::pair<std::string_view, std::string_view>> identities;
  for (const GroupStream& item : tensors) {
    if (!identities.emplace(item.group, item.stream.name).second) {
      throw Error("the tensor {} is to be saved twice; rename one", in_quotes(item.label()));
    }
  }
}

void check_file_names(const std::vector<PlannedFile>& files, const CheckpointState& state,
                      std::span<const CarriedFile> carried) {
  std::set<std::string> names{std::string(kCheckpointManifestName)};
  for (const PlannedFile& file : files) names.insert(file.name);
  if (!state.config.empty()) names.insert(std::string(kCheckpointConfigName));
  for (const CarriedFile& file : carried) {
    if (!is_plain_name(file.name) || file.name.ends_with(".partial") ||
        !names.insert(file.name).second) {
      throw Error("a checkpoint cannot carry a file {}: the name is taken there; rename the file",
                  in_quotes(file.name));
    }
  }
}

/// Writes the file. Fills in `file` and the entries of its tensors for the manifest.
void write_tensor_file(const fs::path& folder, const PlannedFile& plan, int64_t step,
                       std::span<const GroupStream> tensors, CheckpointFile& file,
                       std::vector<CheckpointTensor>& entries) {
  std::vector<TensorStream> items;
  for (const size_t index : plan.tensors) items.push_back(tensors[index].stream);
  const SafetensorsSummary summary = write_streams(
      folder / plan.name, items, {{"group", plan.group}, {"step", std::to_string(step)}});
  file = {plan.name, summary.bytes, hash_text(summary.header_hash)};
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const auto& [group, stream] = tensors[plan.tensors[i]];
    entries[plan.tensors[i]] = {group,        stream.name,  plan.name,
                                stream.dtype, stream.shape, hash_text(summary.hashes[i])};
  }
}

CheckpointFile write_extra_file(const fs::path& folder, const std::string& name,
                                std::string_view content) {
  write_file(folder / name, content);
  return {name, static_cast<int64_t>(content.size()), hash_text(hash(content))};
}

/// Gives the finished folder its name.
void publish(const fs::path& directory, int64_t step, PartialFolder& partial) {
  const fs::path name = checkpoint_path(directory, step);
  const fs::path replaced = checkpoint_path(directory, step, FolderState::replaced);
  if (path_exists(name)) {
    if (path_exists(replaced)) {
      discard_checkpoint(name,
                         step);  // it is broken: otherwise `replaced` would be gone
    } else {
      rename_folder(name, replaced);
      sync_directory(directory);
    }
  }
  rename_folder(partial.path(), name);
  partial.keep();
  sync_directory(directory);
  if (path_exists(replaced)) discard_checkpoint(replaced, step);
}

}  // namespace

fs::path save_checkpoint(const fs::path& directory, const CheckpointState& state,
                         std::span<const NamedTensor> tensors, std::span<const CarriedFile> carried,
                         const SaveOptions& options) {
  std::vector<GroupStream> streams;
  for (const NamedTensor& item : tensors) {
    TESSERA_CHECK(item.tensor.defined() || item.tensor.bytes() == 0, "tensor {} has no memory",
                  in_quotes(item.label()));
    streams.push_back({item.group, stream_of({item.name, item.tensor})});
  }
  return save_streams(directory, state, streams, carried, options);
}

fs::path save_streams(const fs::path& directory, const CheckpointState& state,
                      std::span<const GroupStream> tensors, std::span<const CarriedFile> carried,
                      const SaveOptions& options) {
  TESSERA_CHECK(state.step >= 0, "a checkpoint of step {}", state.step);
  check_tensors(tensors);
  const std::vector<PlannedFile> plan = plan_files(tensors, options.file_bytes);
  check_file_names(plan, state, carried);
  CreatedFolders created(directory);
  const CheckpointLock lock(directory);
  remove_stale_checkpoints(directory);

  PartialFolder partial(checkpoint_path(directory, state.step, FolderState::partial));
  CheckpointManifest manifest;
  manifest.state = state;
  manifest.tensor_files.resize(plan.size());
  manifest.tensors.resize(tensors.size());
  parallel_tasks(options.threads, static_cast<int64_t>(plan.size()), [&](int64_t index) {
    const auto at = static_cast<size_t>(index);
    write_tensor_file(partial.path(), plan[at], state.step, tensors, manifest.tensor_files[at],
                      manifest.tensors);
  });
  if (!state.config.empty()) {
    manifest.extra_files.push_back(
        write_extra_file(partial.path(), std::string(kCheckpointConfigName), state.config));
  }
  for (const CarriedFile& file : carried) {
    manifest.extra_files.push_back(write_extra_file(partial.path(), file.name, file.content));
  }
  // This flushes the manifest and the folder. Every other file was flushed when it was written.
  write_checkpoint_manifest(partial.path(), manifest);
  publish(directory, state.step, partial);
  created.keep();
  return checkpoint_path(directory, state.step);
}

}  // namespace tessera
