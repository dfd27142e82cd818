#include "data/shards/split_reader.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/error.h"

namespace tessera {
namespace {

// Threads read the shards in order and are close to each other in it, so they need few shards at
// once.
constexpr size_t kShardsKeptOpen = 4;

}  // namespace

SplitReader::SplitReader(const fs::path& folder, Split split, int64_t context)
    : folder_(folder), split_(split), manifest_(read_manifest(folder)), open_(kShardsKeptOpen) {
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
    throw Error("{} has no {} data; {}", folder.string(), split_name(split),
                empty_split_advice(split));
  }
  for (const Shard& shard : summary.shards) {
    const fs::path path = folder / shard.file;
    std::error_code code;
    const auto bytes = fs::file_size(path, code);
    if (code) throw Error("cannot read {}: {}; {}", path.string(), code.message(), kPrepareAgain);
    require_shard_bytes(path, static_cast<int64_t>(bytes), shard);
    begins_.push_back(instances_);
    instances_ += shard.instances * (prepared / context_);
  }
}

SplitReader::Position SplitReader::find(int64_t instance) const {
  TESSERA_CHECK(instance >= 0 && instance < instances_, "instance {} of {}", instance, instances_);
  const auto shard = std::prev(std::ranges::upper_bound(begins_, instance));
  return {static_cast<size_t>(shard - begins_.begin()), instance - *shard};
}

std::string SplitReader::location(int64_t instance, int64_t token) const {
  const Position position = find(instance);
  const int64_t before = position.instance * context_ + token;  // the token's index in the shard
  return fmt::format("{}: token {} of row {}", (folder_ / shard(position.shard).file).string(),
                     before % manifest_.recipe.context, before / manifest_.recipe.context);
}

void SplitReader::read(int64_t instance, std::span<int32_t> tokens) const {
  TESSERA_CHECK(static_cast<int64_t>(tokens.size()) == context_, "{} tokens for an instance of {}",
                tokens.size(), context_);
  const Position position = find(instance);
  const auto file = open_.get(position.shard, [&] {
    return std::make_shared<const ShardFile>(folder_, manifest_, shard(position.shard));
  });
  std::vector<std::byte> bytes(static_cast<size_t>(instance_bytes()));
  file->read(position.instance * instance_bytes(), bytes);
  const auto copy = [&]<typename T>(T value) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
      tokens[i] = static_cast<int32_t>(value);
    }
  };
  if (manifest_.dtype == DType::u16) {
    copy(uint16_t{});
  } else {
    copy(int32_t{});
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < manifest_.vocabulary_size) continue;
    throw Error("{} is {}, outside the vocabulary of {}; the file is damaged: {}",
                location(instance, static_cast<int64_t>(i)), tokens[i], manifest_.vocabulary_size,
                kPrepareAgain);
  }
}

void SplitReader::will_need(int64_t instance) const {
  const Position position = find(instance);
  // A shard that is not open yet is opened by the first read(), which reports damage.
  if (const auto file = open_.find(position.shard)) {
    file->will_need(position.instance * instance_bytes(), instance_bytes());
  }
}

}  // namespace tessera
