#include "checkpoint/verify_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"
#include "base/links.h"
#include "base/strict_json.h"
#include "base/text.h"
#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_manifest.h"
#include "checkpoint/find_checkpoint.h"
#include "checkpoint/parallel_tasks.h"
#include "checkpoint/safetensors_reader.h"
#include "tensor/dispatch.h"

// examine() goes through a whole checkpoint: the manifest, the headers of the tensor files, the
// tensors piece by piece on several threads, the extra files, and files that do not belong there.
// It goes on after each problem but an unreadable manifest, so that the report has all of them.

namespace tessera {
namespace {

using OrderedJson = nlohmann::ordered_json;
using Readers = std::map<std::string, SafetensorsReader>;

struct PieceResult {
  std::string problem;
  int64_t nans = 0;
  int64_t infinities = 0;
};

/// Adds the NaNs and infinities among the elements to the counts of `result`.
void count_non_finite(std::span<const std::byte> bytes, DType dtype, PieceResult& result) {
  dispatch_stored(dtype, [&](auto zero) {
    using T = decltype(zero);
    for (size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
      T element;
      std::memcpy(&element, bytes.data() + at, sizeof(T));
      const auto value = static_cast<Compute<T>>(element);
      if (std::isfinite(value)) continue;
      ++(std::isnan(value) ? result.nans : result.infinities);
    }
  });
}

/// Returns the result of a check, or the message of its Error; empty if there is no problem.
template <typename Check>
std::string problem_of(Check&& check) {
  try {
    return check();
  } catch (const Error& error) {
    return error.what();
  }
}

/// A piece that the manifest lists, and its tensor.
struct ListedPiece {
  const CheckpointTensor* tensor;
  const SavedPiece* piece;
};

std::vector<ListedPiece> listed_pieces(const CheckpointManifest& manifest) {
  std::vector<ListedPiece> pieces;
  for (const CheckpointTensor& tensor : manifest.tensors) {
    for (const SavedPiece& piece : tensor.pieces) pieces.push_back({&tensor, &piece});
  }
  return pieces;
}

PieceResult check_piece(const ListedPiece& listed, int64_t block_bytes, const Readers& readers) {
  const CheckpointTensor& tensor = *listed.tensor;
  const SavedPiece& piece = *listed.piece;
  PieceResult result;
  const auto reader = readers.find(piece.file);
  if (reader == readers.end()) {
    result.problem = "cannot be checked: its file cannot be read";
    return result;
  }
  result.problem = header_difference(tensor, piece, reader->second);
  if (!result.problem.empty()) return result;
  const SafetensorsEntry& entry = *reader->second.find(tensor.entry_name(piece.region));
  reader->second.will_need(entry);
  BlockHash hash(block_bytes);
  result.problem = problem_of([&] {
    reader->second.read_chunks(entry, 0, entry.bytes(), [&](std::span<std::byte> bytes) {
      hash.update(bytes);
      if (is_floating(tensor.dtype)) count_non_finite(bytes, tensor.dtype, result);
    });
    return "";
  });
  if (!result.problem.empty()) return result;
  const std::vector<uint64_t> found = hash.finish();
  const auto [wrong, stated] = std::ranges::mismatch(found, piece.hashes);
  if (wrong != found.end()) {
    result.problem = fmt::format("is damaged: the hash of its bytes is {}, the manifest says {}",
                                 hash_text(*wrong), hash_text(*stated));
  }
  return result;
}

std::string size_problem(int64_t found, const CheckpointFile& file) {
  return fmt::format("has {} bytes, the manifest says {}", found, file.bytes);
}

void check_tensor_files(const CheckpointManifest& manifest, Readers& readers,
                        VerifyReport& report) {
  std::set<std::pair<std::string, std::string>> known;  // file, entry
  for (const auto& [tensor, piece] : listed_pieces(manifest)) {
    known.emplace(piece->file, tensor->entry_name(piece->region));
  }
  for (const CheckpointFile& file : manifest.tensor_files) {
    const std::string problem = problem_of([&]() -> std::string {
      const SafetensorsReader& reader =
          readers.emplace(file.name, SafetensorsReader(report.checkpoint / file.name))
              .first->second;
      for (const SafetensorsEntry& entry : reader.entries()) {
        if (known.contains({file.name, entry.name})) continue;
        report.problems.push_back({file.name, entry.name, "is not in the manifest"});
      }
      const std::string found = hash_text(reader.header_hash());
      if (reader.file_bytes() != file.bytes) return size_problem(reader.file_bytes(), file);
      if (found == file.hash) return "";
      return fmt::format("its header is damaged: its hash is {}, the manifest says {}", found,
                         file.hash);
    });
    if (!problem.empty()) report.problems.push_back({file.name, "", problem});
  }
}

void check_extra_files(const CheckpointManifest& manifest, VerifyReport& report) {
  for (const CheckpointFile& file : manifest.extra_files) {
    const std::string problem = problem_of([&]() -> std::string {
      const std::string content = read_file(report.checkpoint / file.name);
      const std::string found = hash_text(hash(content));
      const auto bytes = static_cast<int64_t>(content.size());
      if (bytes != file.bytes) return size_problem(bytes, file);
      if (found == file.hash) return "";
      return fmt::format("is damaged: its hash is {}, the manifest says {}", found, file.hash);
    });
    if (!problem.empty()) report.problems.push_back({file.name, "", problem});
  }
}

void find_foreign_files(const CheckpointManifest& manifest, VerifyReport& report) {
  std::set<std::string> known{std::string(kCheckpointManifestName)};
  for (const CheckpointFile& file : manifest.tensor_files) known.insert(file.name);
  for (const CheckpointFile& file : manifest.extra_files) known.insert(file.name);
  for (const fs::path& path : list_folder(report.checkpoint)) {
    const std::string name = path.filename().string();
    if (known.contains(name)) continue;
    report.warnings.push_back({name, "", "does not belong to the checkpoint"});
  }
}

void check_tensors(const CheckpointManifest& manifest, const Readers& readers, int threads,
                   VerifyReport& report) {
  const std::vector<ListedPiece> pieces = listed_pieces(manifest);
  std::vector<PieceResult> results(pieces.size());
  parallel_tasks(threads, static_cast<int64_t>(results.size()), [&](int64_t index) {
    const auto at = static_cast<size_t>(index);
    results[at] = check_piece(pieces[at], manifest.block_bytes, readers);
  });
  for (size_t i = 0; i < results.size(); ++i) {
    const auto& [tensor, piece] = pieces[i];
    const PieceResult& result = results[i];
    const std::string name =
        tensor->group + "/" + tensor->entry_name(piece->region);  // the tensor's name in its file
    if (!result.problem.empty()) report.problems.push_back({piece->file, name, result.problem});
    if (result.nans + result.infinities > 0) {
      report.warnings.push_back(
          {piece->file, name,
           fmt::format("has {} NaN and {} infinite of {} elements", result.nans, result.infinities,
                       piece->region.elements())});
    }
  }
}

std::string finding_text(std::string_view kind, const VerifyFinding& finding) {
  const std::string tensor =
      finding.tensor.empty() ? "" : fmt::format(" tensor {}", in_quotes(finding.tensor));
  return fmt::format("{}: {}:{} {}\n", kind, printable(finding.file), tensor, finding.message);
}

OrderedJson findings_json(const std::vector<VerifyFinding>& findings) {
  OrderedJson json = OrderedJson::array();
  for (const VerifyFinding& finding : findings) {
    json.push_back(
        {{"file", finding.file}, {"tensor", finding.tensor}, {"message", finding.message}});
  }
  return json;
}

VerifyReport examine(const fs::path& checkpoint, int threads) {
  VerifyReport report;
  report.checkpoint = checkpoint;
  CheckpointManifest manifest;
  const std::string problem = problem_of([&] {
    manifest = read_checkpoint_manifest(checkpoint);
    return "";
  });
  if (!problem.empty()) {
    report.problems.push_back({std::string(kCheckpointManifestName), "", problem});
    return report;
  }
  report.step = manifest.state.step;
  report.tensors = static_cast<int64_t>(manifest.tensors.size());
  report.bytes = manifest.tensor_bytes();
  if (std::string wrong_name = name_problem(checkpoint, report.step); !wrong_name.empty()) {
    report.problems.push_back({std::string(kCheckpointManifestName), "", std::move(wrong_name)});
  }
  Readers readers;
  check_tensor_files(manifest, readers, report);
  check_tensors(manifest, readers, threads, report);
  check_extra_files(manifest, report);
  find_foreign_files(manifest, report);
  return report;
}

/// Returns the report on a checkpoint that was found in its folder. Throws RemovedCheckpoint when
/// it is removed meanwhile.
VerifyReport examine_found(const fs::path& checkpoint, int threads) {
  const FolderHandle handle(checkpoint);
  return read_or_advise(checkpoint, [&] {
    VerifyReport report = examine(checkpoint, threads);
    if (!report.problems.empty() && was_removed(checkpoint, handle)) {
      throw RemovedCheckpoint(checkpoint);
    }
    return report;
  });
}

/// Does what verify_newest() does. Throws RemovedCheckpoint if the newest is removed meanwhile.
VerifyReport try_verify_newest(const fs::path& directory, int threads) {
  CheckpointListing listing = list_checkpoints(directory);
  const auto& complete = listing.complete;
  if (complete.empty() && listing.broken.empty()) {
    throw Error("{} is neither a checkpoint nor a folder that holds one", directory.string());
  }
  const bool broken = complete.empty() || (!listing.broken.empty() &&
                                           listing.broken.back().step >= complete.back().step);
  VerifyReport report =
      examine_found(broken ? listing.broken.back().path : complete.back().path, threads);
  if (broken) listing.broken.pop_back();
  report.others_broken = std::move(listing.broken);
  const size_t others = complete.size() - (broken ? 0 : 1);
  if (others > 0) report.other_complete = complete[others - 1].path;
  for (const fs::path& path : unfinished_checkpoints(directory)) {
    report.warnings.push_back({path.filename().string(), "",
                               "is being written or removed, or was left so by a process that was "
                               "killed; the next save or --resume removes it then"});
  }
  return report;
}

}  // namespace

std::string VerifyReport::text() const {
  std::string result;
  for (const VerifyFinding& finding : problems) result += finding_text("problem", finding);
  for (const VerifyFinding& finding : warnings) result += finding_text("warning", finding);
  if (problems.empty()) {
    result += fmt::format("{} is complete and undamaged: step {}, {} tensors, {}\n",
                          checkpoint.string(), step, tensors, format_bytes(bytes));
  } else {
    result += fmt::format("{} is damaged: {} problem{} found\n", checkpoint.string(),
                          problems.size(), problems.size() == 1 ? "" : "s");
    if (other_complete) {
      result += fmt::format("the newest complete one beside it is {}; verify it by this name\n",
                            other_complete->string());
    }
  }
  for (const BrokenCheckpoint& broken : others_broken) {
    result += fmt::format("{} is broken: {}\n", broken.path.string(), broken.problem);
  }
  return result;
}

std::string VerifyReport::json() const {
  OrderedJson others = OrderedJson::array();
  for (const BrokenCheckpoint& broken : others_broken) {
    others.push_back({{"checkpoint", broken.path.string()}, {"message", broken.problem}});
  }
  const OrderedJson json = {
      {"checkpoint", checkpoint.string()},
      {"ok", ok()},
      {"step", step},
      {"tensors", tensors},
      {"bytes", bytes},
      {"problems", findings_json(problems)},
      {"warnings", findings_json(warnings)},
      {"others_broken", std::move(others)},
      {"other_complete", other_complete ? OrderedJson(other_complete->string()) : OrderedJson()}};
  return json.dump(1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

VerifyReport verify_checkpoint(const fs::path& checkpoint, int threads) {
  if (!is_folder(checkpoint)) {
    throw Error("{} is not a folder{}; give the folder of a checkpoint, such as step-00000100",
                checkpoint.string(), dangling_link_text(checkpoint));
  }
  return examine_found(checkpoint, threads);
}

VerifyReport verify_newest(const fs::path& directory, int threads) {
  for (;;) {
    try {
      return try_verify_newest(directory, threads);
    } catch (const RemovedCheckpoint&) {
      continue;  // another one is the newest now
    }
  }
}

VerifyReport verify_named(const fs::path& path, int threads) {
  return names_checkpoint(path) ? verify_checkpoint(path, threads)
                                : verify_newest(checkpoints_folder(path), threads);
}

}  // namespace tessera
