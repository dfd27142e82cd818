#include "checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <set>

#include "base/hash.h"
#include "base/strict_json.h"
#include "base/text.h"
#include "checkpoint/parallel_tasks.h"
#include "checkpoint/safetensors_types.h"

namespace tessera {
namespace {

constexpr size_t kMostDifferences = 10;  // the most listed in one message

std::string type_text(DType dtype, const Shape& shape) {
  return fmt::format("{} {}", dtype_name(dtype), shape.text());
}

/// Reads a tensor into memory of its own type and returns the hash of the bytes in that memory. So
/// the bytes that were checked are those that were loaded.
uint64_t read_and_hash(const SafetensorsReader& file, const SafetensorsEntry& entry,
                       std::span<std::byte> to) {
  StreamHash hash;
  for (int64_t done = 0; done < entry.bytes(); done += kReadPiece) {
    const int64_t size = std::min(kReadPiece, entry.bytes() - done);
    const auto piece = to.subspan(static_cast<size_t>(done), static_cast<size_t>(size));
    file.read(entry, done, piece);
    hash.update(piece);
  }
  return hash.value();
}

/// Does the same for elements of the shorter floating type `stored`, and widens them.
uint64_t widen_and_hash(const SafetensorsReader& file, const SafetensorsEntry& entry, DType stored,
                        const Tensor& to) {
  const Tensor flat = to.reshape({to.elements()});
  StreamHash hash;
  int64_t done = 0;
  file.read_pieces(entry, 0, entry.bytes(), [&](std::span<std::byte> piece) {
    hash.update(piece);
    const int64_t count = static_cast<int64_t>(piece.size()) / dtype_size(stored);
    convert(Tensor::wrap(piece.data(), {count}, stored), flat.slice(done, done + count));
    done += count;
  });
  return hash.value();
}

/// Returns the result of `read`. Its Error means that the checkpoint is damaged.
template <typename Read>
auto undamaged(Read&& read) {
  try {
    return read();
  } catch (const Error& error) {
    throw DamagedCheckpoint(std::string(error.what()));
  }
}

}  // namespace

std::string header_difference(const CheckpointTensor& tensor, const SafetensorsReader& file) {
  const SafetensorsEntry* entry = file.find(tensor.name);
  if (entry == nullptr) return "its file's header does not name it";
  const auto dims = tensor.shape.dims();
  if (entry->dtype != safetensors_name(tensor.dtype) || !std::ranges::equal(entry->shape, dims)) {
    return fmt::format("its file's header states another type or shape than the manifest's {}",
                       type_text(tensor.dtype, tensor.shape));
  }
  return "";
}

CheckpointReader::CheckpointReader(fs::path folder)
    : folder_(std::move(folder)),
      manifest_(undamaged([&] { return read_checkpoint_manifest(folder_); })) {
  undamaged([&] {
    check_checkpoint_files(folder_, manifest_);
    for (const CheckpointFile& file : manifest_.tensor_files) {
      files_.emplace(file.name, SafetensorsReader(folder_ / file.name));
    }
    for (const CheckpointTensor& tensor : manifest_.tensors) {
      tensors_.emplace(Identity(tensor.group, tensor.name), &tensor);
    }
    check_headers();
  });
  for (const CheckpointFile& file : manifest_.extra_files) {
    if (file.name == kCheckpointConfigName) {
      manifest_.state.config = extra_file(file.name);
    }
  }
}

void CheckpointReader::check_headers() const {
  std::map<std::string, size_t> tensors_of;
  for (const CheckpointTensor& tensor : manifest_.tensors) {
    const std::string difference = header_difference(tensor, files_.at(tensor.file));
    if (!difference.empty()) {
      throw Error("{}: tensor {} cannot be read: {}; use another checkpoint",
                  (folder_ / tensor.file).string(), in_quotes(tensor.label()), difference);
    }
    ++tensors_of[tensor.file];
  }
  for (const CheckpointFile& file : manifest_.tensor_files) {
    const SafetensorsReader& reader = files_.at(file.name);
    const std::string found = hash_text(reader.header_hash());
    if (reader.entries().size() != tensors_of[file.name] || found != file.hash) {
      throw Error(
          "{} has a damaged header: its hash is {}, the manifest says {}; use "
          "another checkpoint",
          reader.path().string(), found, file.hash);
    }
  }
}

const CheckpointTensor* CheckpointReader::find(const std::string& group,
                                               const std::string& name) const {
  const auto found = tensors_.find({group, name});
  return found == tensors_.end() ? nullptr : found->second;
}

void CheckpointReader::check(const CheckpointTensor& tensor) const {
  StreamHash hash;
  undamaged([&] {
    read_pieces(tensor, 0, tensor.bytes(), [&](std::span<std::byte> piece) { hash.update(piece); });
  });
  check_hash(tensor, hash.value());
}

void CheckpointReader::check_hash(const CheckpointTensor& tensor, uint64_t found) const {
  if (hash_text(found) == tensor.hash) return;
  throw DamagedCheckpoint(
      "{}: tensor {} is damaged: the hash of its bytes is {}, the manifest says {}; "
      "use another checkpoint",
      (folder_ / tensor.file).string(), in_quotes(tensor.label()), hash_text(found), tensor.hash);
}

void CheckpointReader::read_pieces(const CheckpointTensor& tensor, int64_t begin, int64_t count,
                                   const PieceSink& sink) const {
  const SafetensorsReader& file = files_.at(tensor.file);
  file.read_pieces(*file.find(tensor.name), begin, count, sink);
}

std::string CheckpointReader::extra_file(const std::string& name) const {
  for (const CheckpointFile& file : manifest_.extra_files) {
    if (file.name != name) continue;
    const fs::path path = folder_ / name;
    std::string content = undamaged([&] { return read_file(path); });
    if (const std::string found = hash_text(hash(content)); found != file.hash) {
      throw DamagedCheckpoint(
          "{} is damaged: its hash is {}, the manifest says {}; use another checkpoint",
          path.string(), found, file.hash);
    }
    return content;
  }
  throw Error("the checkpoint {} carries no file {}", folder_.string(), in_quotes(name));
}

std::string CheckpointReader::difference(const NamedTensor& target) const {
  const auto found = tensors_.find({target.group, target.name});
  if (found == tensors_.end()) {
    return fmt::format("tensor {} is missing in the checkpoint", in_quotes(target.label()));
  }
  const CheckpointTensor& tensor = *found->second;
  const DType wanted = target.tensor.dtype();
  const bool fits = tensor.dtype == wanted || holds_exactly(wanted, tensor.dtype);
  if (fits && tensor.shape == target.shape()) return "";
  return fmt::format("tensor {} is {} in the checkpoint, expected {}", in_quotes(target.label()),
                     type_text(tensor.dtype, tensor.shape), type_text(wanted, target.shape()));
}

void CheckpointReader::load(const NamedTensor& target) const {
  if (const std::string text = difference(target); !text.empty()) {
    throw Error("{}: {}; load it into the model that it was saved from", folder_.string(), text);
  }
  const CheckpointTensor& tensor = *tensors_.at({target.group, target.name});
  const SafetensorsReader& file = files_.at(tensor.file);
  const SafetensorsEntry& entry = *file.find(tensor.name);
  TESSERA_CHECK(target.tensor.defined() || entry.bytes() == 0, "tensor {} has no memory",
                in_quotes(target.label()));
  file.will_need(entry);
  const bool on_device = target.tensor.accelerator() != nullptr;
  const bool split = target.piece && !target.piece->is_whole();
  const Tensor to =
      on_device || split ? Tensor(target.shape(), target.tensor.dtype()) : target.tensor;
  const auto bytes = static_cast<size_t>(to.bytes());
  const uint64_t found = undamaged([&] {
    if (tensor.dtype != to.dtype()) return widen_and_hash(file, entry, tensor.dtype, to);
    return read_and_hash(file, entry, {to.raw(), bytes});
  });
  check_hash(tensor, found);
  if (split) {
    const Tensor own = on_device ? Tensor(target.tensor.shape(), to.dtype()) : target.tensor;
    target.piece->take(to, own);
    if (on_device) upload({own.raw(), static_cast<size_t>(own.bytes())}, target.tensor);
  } else if (on_device) {
    upload({to.raw(), bytes}, target.tensor);
  }
}

void CheckpointReader::load_all(std::span<const NamedTensor> targets, int threads) const {
  load_matching(targets, threads, nullptr);
}

void CheckpointReader::load_group(const std::string& group, std::span<const NamedTensor> targets,
                                  int threads) const {
  for (const NamedTensor& target : targets) {
    TESSERA_CHECK(target.group == group, "tensor {} is not of the group {}",
                  in_quotes(target.label()), in_quotes(group));
  }
  load_matching(targets, threads, &group);
}

void CheckpointReader::load_matching(std::span<const NamedTensor> targets, int threads,
                                     const std::string* group) const {
  std::vector<std::string> differences;
  std::set<Identity> wanted;
  for (const NamedTensor& target : targets) {
    std::string text = difference(target);
    if (!text.empty()) differences.push_back(std::move(text));
    TESSERA_CHECK(wanted.emplace(target.group, target.name).second, "tensor {} is loaded twice",
                  in_quotes(target.label()));
  }
  for (const CheckpointTensor& tensor : manifest_.tensors) {
    if (group != nullptr && tensor.group != *group) continue;
    if (wanted.contains({tensor.group, tensor.name})) continue;
    differences.push_back(fmt::format("tensor {} of the checkpoint has no place in this model",
                                      in_quotes(tensor.label())));
  }
  if (!differences.empty()) {
    const size_t count = differences.size();
    differences.resize(std::min(count, kMostDifferences));
    if (count > kMostDifferences) {
      differences.push_back(fmt::format("and {} more", count - kMostDifferences));
    }
    throw Error(
        "{} does not fit this model; use the configuration that it was saved with ({} in "
        "its folder):\n  {}",
        folder_.string(), kCheckpointConfigName, join(differences, "\n  "));
  }
  parallel_tasks(threads, static_cast<int64_t>(targets.size()),
                 [&](int64_t index) { load(targets[static_cast<size_t>(index)]); });
}

}  // namespace tessera
