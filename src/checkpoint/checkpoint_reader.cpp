// load() finds the stored pieces that share elements with the wanted piece. load_piece() reads the
// blocks that hold these elements, checks their hashes and copies the elements. read_chunks() and
// join_pieces() join the stored pieces into the bytes of the whole tensor, and check no hashes.

#include "checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/hash.h"
#include "base/strict_json.h"
#include "base/text.h"
#include "checkpoint/parallel_tasks.h"

namespace tessera {
namespace {

constexpr size_t kMostDifferences = 10;  // listed in one message

std::string type_text(DType dtype, const Shape& shape) {
  return fmt::format("{} {}", dtype_name(dtype), shape.text());
}

/// Copies the first `count` elements at `from`, which have the type `stored`, to the elements of
/// `to` from index `first` on. Widens them if `to` has another type.
void copy_elements(std::byte* from, DType stored, int64_t count, const Tensor& to, int64_t first) {
  if (stored == to.dtype()) {
    const int64_t size = dtype_size(stored);
    std::memcpy(to.raw() + first * size, from, static_cast<size_t>(count * size));
  } else {
    convert(Tensor::wrap(from, {count}, stored), to.slice(first, first + count));
  }
}

/// Returns the result of `read`. Rethrows its Error as DamagedCheckpoint.
template <typename Read>
decltype(auto) rethrow_as_damaged(Read&& read) {
  try {
    return read();
  } catch (const Error& error) {
    throw DamagedCheckpoint(std::string(error.what()));
  }
}

}  // namespace

RemovedCheckpoint::RemovedCheckpoint(const fs::path& checkpoint)
    : Error(
          "{} was removed while it was read: its run removes old checkpoints; name a newer one or "
          "the run's folder, or keep more of them (checkpoint.keep, checkpoint.keep_every)",
          checkpoint.string()) {}

CheckpointReader::CheckpointReader(fs::path folder)
    : folder_(std::move(folder)),
      manifest_(rethrow_as_damaged([&] { return read_checkpoint_manifest(folder_); })) {
  rethrow_as_damaged([&] { check_checkpoint_files(folder_, manifest_); });
  files_.emplace(folder_, manifest_);
  for (const CheckpointTensor& tensor : manifest_.tensors) {
    tensors_.emplace(Identity(tensor.group, tensor.name), &tensor);
  }
  const std::string config(kCheckpointConfigName);
  if (has_file(config)) manifest_.state.config = extra_file(config);
}

const SafetensorsReader& CheckpointReader::file_of(const SavedPiece& piece) const {
  return rethrow_as_damaged([&]() -> const SafetensorsReader& { return files_->at(piece.file); });
}

const CheckpointTensor* CheckpointReader::find(const std::string& group,
                                               const std::string& name) const {
  const auto found = tensors_.find({group, name});
  return found == tensors_.end() ? nullptr : found->second;
}

void CheckpointReader::check(const CheckpointTensor& tensor) const {
  for (const SavedPiece& piece : tensor.pieces) {
    const SafetensorsReader& file = file_of(piece);
    const SafetensorsEntry& entry = *file.find(tensor.entry_name(piece.region));
    BlockHash hash(manifest_.block_bytes);
    rethrow_as_damaged([&] {
      file.read_chunks(entry, 0, entry.bytes(),
                       [&](std::span<std::byte> bytes) { hash.update(bytes); });
    });
    const std::vector<uint64_t> found = hash.finish();
    for (size_t block = 0; block < found.size(); ++block) {
      check_block(tensor, piece, block, found[block]);
    }
  }
}

void CheckpointReader::check_block(const CheckpointTensor& tensor, const SavedPiece& piece,
                                   size_t block, uint64_t found) const {
  if (found == piece.hashes[block]) return;
  throw DamagedCheckpoint(
      "{}: tensor {} is damaged: the hash of its bytes is {}, the manifest says {}; "
      "use another checkpoint",
      (folder_ / piece.file).string(), tensor.text(piece), hash_text(found),
      hash_text(piece.hashes[block]));
}

void CheckpointReader::read_chunks(const CheckpointTensor& tensor, int64_t begin, int64_t count,
                                   const ChunkSink& sink) const {
  if (tensor.pieces.size() == 1) {
    const SafetensorsReader& file = files_->at(tensor.pieces[0].file);
    return file.read_chunks(*file.find(tensor.name), begin, count, sink);
  }
  std::vector<std::byte> joined(static_cast<size_t>(std::min(count, kReadChunk)));
  for (int64_t done = 0; done < count; done += std::ssize(joined)) {
    joined.resize(static_cast<size_t>(std::min(count - done, kReadChunk)));
    join_pieces(tensor, begin + done, joined);
    sink(joined);
  }
}

/// Fills `to` with the bytes of the whole tensor from byte `begin` on. The bytes that come from one
/// piece are consecutive in its file, so one read per piece is enough.
void CheckpointReader::join_pieces(const CheckpointTensor& tensor, int64_t begin,
                                   std::span<std::byte> to) const {
  struct Run {
    int64_t in_whole, in_piece, count;
  };
  const int64_t size = dtype_size(tensor.dtype);
  const int64_t first = begin / size;
  const int64_t end = first + std::ssize(to) / size;
  const Region whole = Region::whole_of(tensor.shape);
  std::vector<Run> runs;
  std::vector<std::byte> bytes;
  for (const SavedPiece& piece : tensor.pieces) {
    runs.clear();
    visit_common(whole, piece.region.piece_of(tensor.shape), first, end,
                 [&](int64_t in_whole, int64_t in_piece, int64_t count) {
                   runs.push_back({in_whole, in_piece, count});
                 });
    if (runs.empty()) continue;
    const int64_t piece_begin = runs.front().in_piece;
    bytes.resize(
        static_cast<size_t>((runs.back().in_piece + runs.back().count - piece_begin) * size));
    const SafetensorsReader& file = files_->at(piece.file);
    file.read(*file.find(tensor.entry_name(piece.region)), piece_begin * size, bytes);
    for (const Run& run : runs) {
      std::memcpy(to.data() + (run.in_whole - first) * size,
                  bytes.data() + (run.in_piece - piece_begin) * size,
                  static_cast<size_t>(run.count * size));
    }
  }
}

bool CheckpointReader::has_file(const std::string& name) const {
  return std::ranges::count(manifest_.extra_files, name, &CheckpointFile::name) > 0;
}

std::string CheckpointReader::extra_file(const std::string& name) const {
  for (const CheckpointFile& file : manifest_.extra_files) {
    if (file.name != name) continue;
    const fs::path path = folder_ / name;
    std::string content = rethrow_as_damaged([&] { return read_file(path); });
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
  TESSERA_CHECK(target.tensor.defined() || target.tensor.bytes() == 0, "tensor {} has no memory",
                in_quotes(target.label()));
  const bool on_device = target.tensor.accelerator() != nullptr;
  const Tensor to =
      on_device ? Tensor(target.tensor.shape(), target.tensor.dtype()) : target.tensor;
  const TensorPiece wanted = target.piece.value_or(TensorPiece(target.shape()));
  for (const SavedPiece& piece : tensor.pieces) {
    load_piece(tensor, piece, wanted, to.reshape({to.elements()}));
  }
  if (on_device) upload({to.raw(), static_cast<size_t>(to.bytes())}, target.tensor);
}

/// Copies the elements that a stored piece and the wanted piece have in common. Each block is read
/// once, so the bytes that are copied are those whose hash is checked.
void CheckpointReader::load_piece(const CheckpointTensor& tensor, const SavedPiece& piece,
                                  const TensorPiece& wanted, const Tensor& to) const {
  const int64_t size = dtype_size(tensor.dtype);
  const int64_t bytes = piece.region.elements() * size;
  for (size_t block = 0; block < piece.hashes.size(); ++block) {
    const int64_t begin = static_cast<int64_t>(block) * manifest_.block_bytes;
    const int64_t count = std::min(bytes - begin, manifest_.block_bytes);
    if (bytes > 0 && !any_common(piece.region, wanted, begin / size, (begin + count) / size)) {
      continue;
    }
    const SafetensorsReader& file = file_of(piece);
    const SafetensorsEntry& entry = *file.find(tensor.entry_name(piece.region));
    StreamHash hash;
    int64_t first = begin / size;  // an index among the piece's elements
    rethrow_as_damaged([&] {
      file.read_chunks(entry, begin, count, [&](std::span<std::byte> chunk) {
        hash.update(chunk);
        const int64_t end = first + std::ssize(chunk) / size;
        visit_common(piece.region, wanted, first, end,
                     [&](int64_t in_piece, int64_t in_wanted, int64_t elements) {
                       copy_elements(chunk.data() + (in_piece - first) * size, tensor.dtype,
                                     elements, to, in_wanted);
                     });
        first = end;
      });
    });
    check_block(tensor, piece, block, hash.value());
  }
}

void CheckpointReader::require_all(std::span<const NamedTensor> targets,
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
}

void CheckpointReader::load_each(std::span<const NamedTensor> targets, int threads) const {
  parallel_tasks(threads, static_cast<int64_t>(targets.size()),
                 [&](int64_t index) { load(targets[static_cast<size_t>(index)]); });
}

}  // namespace tessera
