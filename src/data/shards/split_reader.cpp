#include "data/shards/split_reader.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace tessera {

SplitReader::SplitReader(const fs::path& folder, Split split, int64_t context)
    : manifest_(read_manifest(folder)) {
  const int64_t prepared = manifest_.recipe.context;
  context_ = context == 0 ? prepared : context;
  if (context_ < 2 || context_ > prepared || prepared % context_ != 0) {
    throw Error(
        "the context of {} does not fit the data in {}, which was prepared with {}; expected {} or "
        "a divisor of it that is at least 2, or data prepared with --context {}",
        context_, folder.string(), prepared, prepared, context_);
  }
  const SplitSummary& summary = manifest_.split(split);
  if (summary.shards.empty()) {
    throw Error("{} has no {} data; prepare it again with a {}", folder.string(), split_name(split),
                split == Split::train ? "smaller held-out fraction" : "held-out fraction above 0");
  }
  for (const Shard& shard : summary.shards) add_shard(folder / shard.file, shard);
}

void SplitReader::add_shard(const fs::path& path, const Shard& shard) {
  MappedFile file(path);
  const std::string name = path.string();
  const auto refuse = [&](std::string_view what, const auto& found, const auto& expected) {
    throw Error("{}: its {} is {}, but the manifest says {}; it is damaged: run prepare again",
                name, what, found, expected);
  };
  const int64_t bytes = static_cast<int64_t>(file.bytes().size());
  if (bytes != shard.bytes) refuse("size in bytes", bytes, shard.bytes);
  const NpyHeader header = parse_npy_header(file.bytes(), name);
  if (header.dtype != manifest_.dtype) {
    refuse("element type", npy_type_name(header.dtype), npy_type_name(manifest_.dtype));
  }
  const std::vector<int64_t> shape = {shard.instances, manifest_.recipe.context};
  if (header.shape != shape) {
    refuse("shape", fmt::format("[{}]", fmt::join(header.shape, ", ")),
           fmt::format("[{}]", fmt::join(shape, ", ")));
  }
  const int64_t instances = shard.instances * (manifest_.recipe.context / context_);
  shards_.push_back({std::move(file), header.data_offset, instances_, instances});
  instances_ += instances;
}

const SplitReader::MappedShard& SplitReader::shard_of(int64_t instance) const {
  TESSERA_CHECK(instance >= 0 && instance < instances_, "instance {} of {}", instance, instances_);
  const auto after = std::upper_bound(
      shards_.begin(), shards_.end(), instance,
      [](int64_t value, const MappedShard& shard) { return value < shard.first_instance; });
  return *std::prev(after);
}

void SplitReader::read(int64_t instance, std::span<int32_t> tokens) const {
  TESSERA_CHECK(static_cast<int64_t>(tokens.size()) == context_, "{} tokens for an instance of {}",
                tokens.size(), context_);
  const MappedShard& shard = shard_of(instance);
  const size_t offset =
      static_cast<size_t>(shard.data_offset + (instance - shard.first_instance) * context_ *
                                                  dtype_size(manifest_.dtype));
  const std::byte* source = shard.file.bytes().data() + offset;
  // A header may have any length, so the elements need not be aligned.
  const auto copy = [&]<typename T>(T value) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      std::memcpy(&value, source + i * sizeof(T), sizeof(T));
      tokens[i] = static_cast<int32_t>(value);
    }
  };
  if (manifest_.dtype == DType::u16) {
    copy(uint16_t{});
  } else {
    copy(int32_t{});
  }
  for (const int32_t token : tokens) {
    if (token >= 0 && token < manifest_.vocabulary_size) continue;
    throw Error(
        "{}: row {} holds token {}, outside the vocabulary of {}; the file is damaged: run prepare "
        "again",
        shard.file.path().string(),
        (instance - shard.first_instance) * context_ / manifest_.recipe.context, token,
        manifest_.vocabulary_size);
  }
}

void SplitReader::will_need(int64_t first_instance, int64_t count) const {
  while (count > 0 && first_instance < instances_) {
    const MappedShard& shard = shard_of(first_instance);
    const int64_t row = first_instance - shard.first_instance;
    const int64_t rows = std::min(count, shard.instances - row);
    const int64_t row_bytes = context_ * dtype_size(manifest_.dtype);
    shard.file.will_need(static_cast<size_t>(shard.data_offset + row * row_bytes),
                         static_cast<size_t>(rows * row_bytes));
    first_instance += rows;
    count -= rows;
  }
}

}  // namespace tessera
