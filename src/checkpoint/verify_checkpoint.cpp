#include "checkpoint/verify_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"
#include "base/strict_json.h"
#include "base/text.h"
#include "checkpoint/checkpoint_manifest.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/parallel_tasks.h"
#include "checkpoint/safetensors_reader.h"
#include "tensor/dispatch.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;
using Readers = std::map<std::string, SafetensorsReader>;

constexpr size_t kChunk = size_t{1} << 20;  // hashed and then counted while it is in the cache

struct TensorResult {
  std::string problem;
  int64_t nans = 0;
  int64_t infinities = 0;
};

/// Adds the NaNs and infinities among elements that need not be aligned.
void count_non_finite(std::span<const std::byte> bytes, DType dtype, TensorResult& result) {
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

TensorResult check_tensor(const CheckpointTensor& tensor, const Readers& readers) {
  TensorResult result;
  const auto reader = readers.find(tensor.file);
  if (reader == readers.end()) {
    result.problem = "cannot be checked: its file cannot be read";
    return result;
  }
  result.problem = header_difference(tensor, reader->second);
  if (!result.problem.empty()) return result;
  const SafetensorsEntry& entry = *reader->second.find(tensor.name);
  reader->second.will_need(entry);
  std::span<const std::byte> bytes = reader->second.bytes(entry);
  StreamHash hash;
  while (!bytes.empty()) {
    const auto chunk = bytes.first(std::min(kChunk, bytes.size()));
    hash.update(chunk);
    if (is_floating(tensor.dtype)) count_non_finite(chunk, tensor.dtype, result);
    bytes = bytes.subspan(chunk.size());
  }
  const std::string found = hash_text(hash.value());
  if (found != tensor.hash) {
    result.problem = fmt::format("is damaged: the hash of its bytes is {}, the manifest says {}",
                                 found, tensor.hash);
  }
  return result;
}

/// What is wrong with a file; empty when nothing is.
template <typename Check>
std::string problem_of(Check&& check) {
  try {
    return check();
  } catch (const Error& error) {
    return error.what();
  }
}

void check_tensor_files(const CheckpointManifest& manifest, Readers& readers,
                        VerifyReport& report) {
  std::set<std::pair<std::string_view, std::string_view>> known;  // file, tensor
  for (const CheckpointTensor& tensor : manifest.tensors) known.emplace(tensor.file, tensor.name);
  for (const CheckpointFile& file : manifest.tensor_files) {
    const std::string problem = problem_of([&]() -> std::string {
      const SafetensorsReader& reader =
          readers.emplace(file.name, SafetensorsReader(report.checkpoint / file.name))
              .first->second;
      for (const SafetensorsEntry& entry : reader.entries()) {
        if (known.contains({file.name, entry.name})) continue;
        report.problems.push_back({file.name, entry.name, "is not in the manifest"});
      }
      const std::string found = hash_text(hash(reader.header()));
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
      const std::string found = hash_text(hash(MappedFile(report.checkpoint / file.name).bytes()));
      if (found == file.hash) return "";
      return fmt::format("is damaged: its hash is {}, the manifest says {}", found, file.hash);
    });
    if (!problem.empty()) report.problems.push_back({file.name, "", problem});
  }
}

void find_strangers(const CheckpointManifest& manifest, VerifyReport& report) {
  std::set<std::string> known{std::string(kCheckpointManifestName)};
  for (const CheckpointFile& file : manifest.tensor_files) known.insert(file.name);
  for (const CheckpointFile& file : manifest.extra_files) known.insert(file.name);
  std::set<std::string> strangers;  // sorted: the system lists a folder in any order
  std::error_code code;
  auto entry = fs::directory_iterator(report.checkpoint, code);
  for (; !code && entry != fs::directory_iterator(); entry.increment(code)) {
    const std::string name = entry->path().filename().string();
    if (!known.contains(name)) strangers.insert(name);
  }
  for (const std::string& name : strangers) {
    report.warnings.push_back({name, "", "does not belong to the checkpoint"});
  }
}

void check_tensors(const CheckpointManifest& manifest, const Readers& readers, int threads,
                   VerifyReport& report) {
  std::vector<TensorResult> results(manifest.tensors.size());
  parallel_tasks(threads, static_cast<int64_t>(results.size()), [&](int64_t index) {
    const auto at = static_cast<size_t>(index);
    results[at] = check_tensor(manifest.tensors[at], readers);
  });
  for (size_t i = 0; i < results.size(); ++i) {
    const CheckpointTensor& tensor = manifest.tensors[i];
    const TensorResult& result = results[i];
    if (!result.problem.empty()) {
      report.problems.push_back({tensor.file, tensor.label(), result.problem});
    }
    if (result.nans + result.infinities > 0) {
      report.warnings.push_back(
          {tensor.file, tensor.label(),
           fmt::format("has {} NaN and {} infinite of {} elements", result.nans, result.infinities,
                       tensor.shape.elements())});
    }
  }
}

std::string finding_text(std::string_view kind, const VerifyFinding& finding) {
  const std::string tensor =
      finding.tensor.empty() ? "" : fmt::format(" tensor {}", in_quotes(finding.tensor));
  return fmt::format("{}: {}:{} {}\n", kind, printable(finding.file), tensor, finding.message);
}

Json findings_json(const std::vector<VerifyFinding>& findings) {
  Json json = Json::array();
  for (const VerifyFinding& finding : findings) {
    json.push_back(
        {{"file", finding.file}, {"tensor", finding.tensor}, {"message", finding.message}});
  }
  return json;
}

}  // namespace

std::string VerifyReport::text() const {
  std::string result;
  for (const VerifyFinding& finding : problems) result += finding_text("problem", finding);
  for (const VerifyFinding& finding : warnings) result += finding_text("warning", finding);
  if (ok()) {
    return result + fmt::format("{} is complete and undamaged: step {}, {} tensors, {}\n",
                                checkpoint.string(), step, tensors, format_bytes(bytes));
  }
  return result + fmt::format("{} is damaged: {} problem{} found\n", checkpoint.string(),
                              problems.size(), problems.size() == 1 ? "" : "s");
}

std::string VerifyReport::json() const {
  const Json json = {{"checkpoint", checkpoint.string()},
                     {"ok", ok()},
                     {"step", step},
                     {"tensors", tensors},
                     {"bytes", bytes},
                     {"problems", findings_json(problems)},
                     {"warnings", findings_json(warnings)}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

VerifyReport verify_checkpoint(const fs::path& checkpoint, int threads) {
  std::error_code code;
  if (!fs::is_directory(checkpoint, code)) {
    throw Error("{} is not a folder; give the folder of a checkpoint, such as step-00000100",
                checkpoint.string());
  }
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
  Readers readers;
  check_tensor_files(manifest, readers, report);
  check_tensors(manifest, readers, threads, report);
  check_extra_files(manifest, report);
  find_strangers(manifest, report);
  return report;
}

}  // namespace tessera
