// A checkpoint is written into the folder step-N.partial. plan_files() divides the pieces of each
// group's tensors over .safetensors files, and write_part() writes one writer's files in parallel
// and returns their entries in the manifest. SharedSave::commit() adds config.toml and the carried
// files, writes manifest.json last and renames the folder to step-N. All bytes are on the disk
// before that, so a killed process leaves nothing that looks complete.
//
// If step N exists already, it is renamed to step-N.replaced just before, and removed after the new
// one has its name. Without commit(), the destructor of SharedSave removes the folder, so an error
// on any rank leaves nothing.

#include "checkpoint/save.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "base/strict_json.h"
#include "checkpoint/parallel_tasks.h"

namespace tessera {
namespace {

constexpr std::string_view kExtension = ".safetensors";

constexpr int64_t kCopiedAtOnce = int64_t{1} << 20;  // bytes that are gathered in a buffer

/// A piece of a tensor: the indices of the tensor and of the piece.
struct PlannedPiece {
  size_t tensor, piece;
};

/// A safetensors file to write: its name and its pieces of one group's tensors.
struct PlannedFile {
  std::string group;
  std::string name;
  std::vector<PlannedPiece> pieces;
};

void check_group(const std::string& group) {
  const bool plain = !group.empty() && std::all_of(group.begin(), group.end(), [](char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= '0' && letter <= '9') || letter == '_';
  });
  TESSERA_CHECK(plain, "a group of tensors named {}; it becomes a file's name", in_quotes(group));
}

/// Returns the files of each group, in order of the group's first appearance. A group is split
/// where a file would exceed the limit. A group of which this writer has nothing gets no file.
std::vector<PlannedFile> plan_files(std::span<const TensorToSave> tensors,
                                    const CheckpointWriter& writer, int64_t limit) {
  std::vector<std::string> groups;
  for (const TensorToSave& item : tensors) {
    if (std::find(groups.begin(), groups.end(), item.group) != groups.end()) continue;
    check_group(item.group);
    groups.push_back(item.group);
  }
  const std::string writer_suffix =
      writer.count == 1 ? "" : fmt::format("-rank-{:05}", writer.number);
  std::vector<PlannedFile> files;
  for (const std::string& group : groups) {
    const size_t first = files.size();
    int64_t bytes = 0;
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].group != group) continue;
      for (size_t piece = 0; piece < tensors[i].pieces.size(); ++piece) {
        const int64_t size =
            tensors[i].pieces[piece].region.elements() * dtype_size(tensors[i].dtype);
        if (files.size() == first || (bytes > 0 && size > limit - bytes)) {
          files.push_back({group, "", {}});
          bytes = 0;
        }
        files.back().pieces.push_back({i, piece});
        bytes += size;
      }
    }
    const size_t count = files.size() - first;
    for (size_t i = 0; i < count; ++i) {
      const std::string suffix = count == 1 ? "" : fmt::format("-{:05}-of-{:05}", i + 1, count);
      files[first + i].name = fmt::format("{}{}{}{}", group, writer_suffix, suffix, kExtension);
    }
  }
  return files;
}

void check_tensors(std::span<const TensorToSave> tensors) {
  std::set<std::pair<std::string_view, std::string_view>> identities;
  for (const TensorToSave& item : tensors) {
    if (!identities.emplace(item.group, item.name).second) {
      throw Error("the tensor {} is to be saved twice; rename one", in_quotes(item.label()));
    }
  }
}

void check_file_names(const std::vector<CheckpointFile>& files, const CheckpointState& state,
                      std::span<const CarriedFile> carried) {
  std::set<std::string> names{std::string(kCheckpointManifestName)};
  for (const CheckpointFile& file : files) names.insert(file.name);
  if (!state.config.empty()) names.insert(std::string(kCheckpointConfigName));
  for (const CarriedFile& file : carried) {
    if (!is_plain_name(file.name) || file.name.ends_with(".partial") ||
        !names.insert(file.name).second) {
      throw Error("a checkpoint cannot carry a file {}: its name is taken or forbidden; rename it",
                  in_quotes(file.name));
    }
  }
}

/// Writes the file. Fills in `file` and the pieces of its tensors for the manifest.
void write_tensor_file(const fs::path& folder, const PlannedFile& plan, int64_t step,
                       std::span<const TensorToSave> tensors, CheckpointManifest& manifest,
                       CheckpointFile& file) {
  std::vector<TensorStream> streams;
  for (const auto& [tensor, piece] : plan.pieces) {
    const TensorToSave::Piece& to_save = tensors[tensor].pieces[piece];
    streams.push_back({manifest.tensors[tensor].entry_name(to_save.region), tensors[tensor].dtype,
                       to_save.region.shape(), to_save.produce});
  }
  SafetensorsSummary summary =
      write_streams(folder / plan.name, streams,
                    {{"group", plan.group}, {"step", std::to_string(step)}}, manifest.block_bytes);
  file = {plan.name, summary.bytes, hash_text(summary.header_hash)};
  for (size_t i = 0; i < plan.pieces.size(); ++i) {
    const auto& [tensor, piece] = plan.pieces[i];
    manifest.tensors[tensor].pieces[piece] = {plan.name, tensors[tensor].pieces[piece].region,
                                              std::move(summary.hashes[i])};
  }
}

CheckpointFile write_extra_file(const fs::path& folder, const std::string& name,
                                std::string_view content) {
  write_file(folder / name, content);
  return {name, static_cast<int64_t>(content.size()), hash_text(hash(content))};
}

/// Gives the finished folder its name. An older checkpoint of the step makes way first, and is
/// removed last, so that one complete checkpoint of the step exists at every moment.
void publish(const fs::path& directory, int64_t step, PartialFolder& partial) {
  const fs::path complete = checkpoint_path(directory, step);
  const fs::path replaced = checkpoint_path(directory, step, FolderState::replaced);
  if (path_exists(complete)) {
    if (path_exists(replaced)) {
      // `complete` is broken, or else `replaced` would have been removed.
      discard_checkpoint(complete, step);
    } else {
      rename_folder(complete, replaced);
      sync_directory(directory);
    }
  }
  rename_folder(partial.path(), complete);
  partial.keep();
  sync_directory(directory);
  if (path_exists(replaced)) discard_checkpoint(replaced, step);
}

}  // namespace

TensorToSave whole_to_save(const std::string& group, TensorStream stream) {
  return {group,
          std::move(stream.name),
          stream.dtype,
          stream.shape,
          {{Region::whole_of(stream.shape), std::move(stream.produce)}}};
}

TensorToSave::Piece piece_to_save(const Region& region, const TensorPiece& held,
                                  const Tensor& memory) {
  return {region, [region, held, memory](const ByteSink& sink) {
            const Tensor host = on_host(memory);
            const auto size = static_cast<int64_t>(dtype_size(host.dtype()));
            const int64_t elements = region.elements();
            std::vector<std::byte> chunk;
            for (int64_t begin = 0; begin < elements;) {
              const int64_t end = std::min(elements, begin + kCopiedAtOnce / size);
              chunk.clear();
              visit_common(region, held, begin, end, [&](int64_t, int64_t from, int64_t count) {
                const std::byte* first = host.raw() + from * size;
                const std::span bytes(first, static_cast<size_t>(count * size));
                if (count == end - begin) return sink(bytes);  // one run: no copy is needed
                chunk.insert(chunk.end(), bytes.begin(), bytes.end());
              });
              if (!chunk.empty()) sink(chunk);
              begin = end;
            }
          }};
}

fs::path save_streams(const fs::path& directory, const CheckpointState& state,
                      std::span<const TensorToSave> tensors, std::span<const CarriedFile> carried,
                      const SaveOptions& options) {
  SharedSave save(directory, state.step);
  CheckpointManifest written = write_part(save.folder(), state.step, tensors, {}, options);
  return save.commit(state, std::move(written), carried);
}

CheckpointManifest write_part(const fs::path& folder, int64_t step,
                              std::span<const TensorToSave> tensors, const CheckpointWriter& writer,
                              const SaveOptions& options) {
  check_tensors(tensors);
  const std::vector<PlannedFile> plan = plan_files(tensors, writer, options.file_bytes);
  CheckpointManifest manifest;
  manifest.state.step = step;
  manifest.block_bytes = options.block_bytes;
  manifest.tensor_files.resize(plan.size());
  for (const TensorToSave& item : tensors) {
    manifest.tensors.push_back({item.group, item.name, item.dtype, item.shape, {}});
    manifest.tensors.back().pieces.resize(item.pieces.size());
  }
  parallel_tasks(options.threads, static_cast<int64_t>(plan.size()), [&](int64_t index) {
    const auto at = static_cast<size_t>(index);
    write_tensor_file(folder, plan[at], step, tensors, manifest, manifest.tensor_files[at]);
  });
  return manifest;
}

SharedSave::SharedSave(const fs::path& directory, int64_t step)
    : directory_(directory), step_(step), created_(directory), lock_(directory) {
  TESSERA_CHECK(step >= 0, "a checkpoint of step {}", step);
  remove_stale_checkpoints(directory);
  partial_.emplace(checkpoint_path(directory, step, FolderState::partial));
}

fs::path SharedSave::commit(const CheckpointState& state, CheckpointManifest written,
                            std::span<const CarriedFile> carried) {
  TESSERA_CHECK(state.step == step_, "the state of step {} in a checkpoint of step {}", state.step,
                step_);
  check_file_names(written.tensor_files, state, carried);
  check_checkpoint_files(folder(), written);
  written.state = state;
  if (!state.config.empty()) {
    written.extra_files.push_back(
        write_extra_file(folder(), std::string(kCheckpointConfigName), state.config));
  }
  for (const CarriedFile& file : carried) {
    written.extra_files.push_back(write_extra_file(folder(), file.name, file.content));
  }
  if (!lock_.is_at(directory_)) {
    throw Error(
        "{} was moved or removed while the checkpoint of step {} was written there: it is not "
        "complete; leave the folder alone while checkpoints are written",
        directory_.string(), step_);
  }
  // This flushes the manifest and the folder. Every other file was flushed when it was written.
  write_checkpoint_manifest(folder(), written);
  publish(directory_, step_, *partial_);
  created_.keep();
  return checkpoint_path(directory_, step_);
}

}  // namespace tessera
