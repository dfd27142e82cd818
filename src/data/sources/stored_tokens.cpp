#include "data/sources/stored_tokens.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "base/hash.h"

// read() alternates between added tokens, which are in no file, and runs of stored ones, which
// read_stored() reads file by file, checks and converts. Files are opened when first needed.

namespace tessera {
namespace {

constexpr int64_t kSamples = 16;  // of each file, for sampled_hash()
constexpr int64_t kSampleBytes = 4096;
constexpr size_t kOpenedFiles = 256;  // fewer than systems allow per process

/// Calls visit() with a value of the C++ type for `type`.
template <typename Visit>
auto with_type(TokenType type, Visit&& visit) {
  switch (type) {
    case TokenType::u16:
      return visit(uint16_t{});
    case TokenType::u32:
      return visit(uint32_t{});
    case TokenType::i32:
      return visit(int32_t{});
    default:
      return visit(int64_t{});
  }
}

/// Returns the byte offset of a token in its file. Data may begin anywhere in a file, so the
/// elements need not be aligned.
int64_t byte_of(const TokenFile& file, FileIndex token) {
  return file.data_offset + token.value * token_type_bytes(file.type);
}

/// Returns the stored index of a token that is not an added one.
StoredIndex stored_index(StreamIndex token, size_t added_before) {
  return {token.value - static_cast<int64_t>(added_before)};
}

}  // namespace

int64_t token_type_bytes(TokenType type) {
  return with_type(type, [](auto value) { return static_cast<int64_t>(sizeof(value)); });
}

StoredTokens::StoredTokens(std::vector<TokenFile> files, const TokenIdRange& ids)
    : files_(std::move(files)),
      begins_{StoredIndex{0}},
      ids_(ids),
      opened_files_(std::make_unique<LruCache<ReadFile>>(kOpenedFiles)) {
  for (const TokenFile& file : files_) begins_.push_back({begins_.back().value + file.tokens});
}

std::shared_ptr<const ReadFile> StoredTokens::open(size_t file) const {
  return opened_files_->get(file, [&] {
    auto opened = std::make_shared<const ReadFile>(files_[file].path);
    if (opened->size() != files_[file].bytes) {
      throw Error(
          "{} has {} bytes, but had {} when the data was opened; leave it alone while it is read",
          opened->path().string(), opened->size(), files_[file].bytes);
    }
    return opened;
  });
}

StoredTokens::FileRange StoredTokens::range_at(StoredIndex first, int64_t limit) const {
  const auto after = std::upper_bound(begins_.begin(), begins_.end(), first);
  const size_t index = static_cast<size_t>(std::distance(begins_.begin(), after)) - 1;
  TESSERA_CHECK(first.value >= 0 && index < files_.size(), "token {} of {}", first.value, stored());
  return {index,
          {first.value - begins_[index].value},
          std::min(limit, begins_[index + 1].value - first.value)};
}

int64_t StoredTokens::stored_token(StoredIndex token) {
  const FileRange range = range_at(token, 1);
  if (!setup_file_ || setup_file_->file != range.file) {
    auto opened = open(range.file);
    const ReadFile& file = *opened;
    setup_file_.emplace(SetupFile{range.file, std::move(opened), FileWindow(file)});
  }
  const TokenFile& file = files_[range.file];
  return with_type(file.type, [&](auto value) {
    return static_cast<int64_t>(
        setup_file_->window.load<decltype(value)>(byte_of(file, range.first)));
  });
}

void StoredTokens::add_end_of_document(StoredIndex next) {
  const StreamIndex end{next.value + added()};
  TESSERA_CHECK(
      next.value >= 0 && next.value <= stored() && (added_.empty() || added_.back() < end),
      "an end of a document at {} of {}", next.value, stored());
  added_.push_back(end);
}

void StoredTokens::ensure_end_of_document(StoredIndex next) {
  if (stored_token({next.value - 1}) != ids_.end_of_document) add_end_of_document(next);
}

size_t StoredTokens::added_before(StreamIndex token) const {
  const auto found = std::lower_bound(added_.begin(), added_.end(), token);
  return static_cast<size_t>(std::distance(added_.begin(), found));
}

void StoredTokens::read(StreamIndex first, std::span<int32_t> tokens) const {
  const int64_t end = first.value + static_cast<int64_t>(tokens.size());
  TESSERA_CHECK(first.value >= 0 && end <= this->tokens(), "tokens {} to {} of {}", first.value,
                end, this->tokens());
  size_t next_added = added_before(first);  // the index in added_ of the next added token
  while (!tokens.empty()) {
    const int64_t until_added = next_added < added_.size() ? added_[next_added].value - first.value
                                                           : static_cast<int64_t>(tokens.size());
    if (until_added == 0) {
      tokens.front() = ids_.end_of_document;
      tokens = tokens.subspan(1);
      ++next_added;
      ++first.value;
      continue;
    }
    const auto run = std::min(static_cast<size_t>(until_added), tokens.size());
    read_stored(stored_index(first, next_added), tokens.first(run));
    tokens = tokens.subspan(run);
    first.value += static_cast<int64_t>(run);
  }
}

void StoredTokens::read_stored(StoredIndex first, std::span<int32_t> tokens) const {
  std::vector<std::byte> bytes;
  while (!tokens.empty()) {
    const FileRange range = range_at(first, static_cast<int64_t>(tokens.size()));
    const TokenFile& file = files_[range.file];
    bytes.resize(static_cast<size_t>(range.count * token_type_bytes(file.type)));
    open(range.file)->read_at(byte_of(file, range.first), bytes);
    with_type(file.type, [&](auto value) {
      for (int64_t i = 0; i < range.count; ++i) {
        std::memcpy(&value, bytes.data() + i * static_cast<int64_t>(sizeof(value)), sizeof(value));
        const auto id = static_cast<int64_t>(value);
        if (id < 0 || id >= ids_.vocabulary_size) {
          throw Error(
              "{}: token {} is {}, outside the vocabulary of {}; is the data damaged, its element "
              "type another than {}, or the tokenizer not the one that made it?",
              file.path.string(), range.first.value + i, id, ids_.vocabulary_size, word(file.type));
        }
        tokens[static_cast<size_t>(i)] = static_cast<int32_t>(id);
      }
    });
    tokens = tokens.subspan(static_cast<size_t>(range.count));
    first.value += range.count;
  }
}

std::string StoredTokens::location(StreamIndex token) const {
  const size_t added = added_before(token);
  if (added < added_.size() && added_[added] == token) return "an end-of-document token put in";
  const FileRange range = range_at(stored_index(token, added), 1);
  return fmt::format("{}: token {}", files_[range.file].path.string(), range.first.value);
}

void StoredTokens::will_need(StreamIndex first, int64_t count) const {
  // If some of the `count` tokens are added, a little too much is read ahead.
  StoredIndex next = stored_index(first, added_before(first));
  const int64_t end = std::min(next.value + count, stored());
  while (next.value < end) {
    const FileRange range = range_at(next, end - next.value);
    const TokenFile& file = files_[range.file];
    open(range.file)
        ->will_need(byte_of(file, range.first), range.count * token_type_bytes(file.type));
    next.value += range.count;
  }
}

uint64_t StoredTokens::sampled_hash() const {
  StreamHash hash;
  const auto add_number = [&](int64_t number) {
    hash.update(std::as_bytes(std::span(&number, 1)));
  };
  std::vector<std::byte> sampled;
  for (size_t index = 0; index < files_.size(); ++index) {
    const TokenFile& file = files_[index];
    add_number(file.tokens);
    add_number(static_cast<int64_t>(file.type));
    const auto opened = open(index);
    const int64_t furthest = std::max<int64_t>(0, file.bytes - kSampleBytes);
    for (int64_t sample = 0; sample < kSamples; ++sample) {
      // From start to end. In this order of operations no product overflows.
      const int64_t begin =
          furthest / (kSamples - 1) * sample + furthest % (kSamples - 1) * sample / (kSamples - 1);
      sampled.resize(static_cast<size_t>(std::min(kSampleBytes, file.bytes - begin)));
      opened->read_at(begin, sampled);
      hash.update(sampled);
    }
  }
  static_assert(sizeof(StreamIndex) == sizeof(int64_t));  // the hash is of the numbers alone
  hash.update(std::as_bytes(std::span(added_)));
  add_number(ids_.vocabulary_size);
  add_number(ids_.end_of_document);
  return hash.value();
}

}  // namespace tessera
