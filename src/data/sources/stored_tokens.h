#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_window.h"
#include "base/read_file.h"
#include "data/data_config.h"
#include "data/lru_cache.h"

namespace tessera {

/// Returns the size of an id in bytes. Ids in files are little-endian.
int64_t token_type_bytes(TokenType type);

/// A file that consists of token ids from `data_offset` on.
struct TokenFile {
  fs::path path;
  int64_t bytes = 0;        // the size of the whole file
  int64_t data_offset = 0;  // bytes
  TokenType type = TokenType::u16;
  int64_t tokens = 0;
};

/// The valid ids, and the id that ends a document.
struct TokenIdRange {
  int64_t vocabulary_size = 0;
  int32_t end_of_document = 0;
};

/// The number of tokens before a token of StoredTokens, stored and added ones. (clang-tidy 14 sees
/// a null pointer in a defaulted operator<=>.)
struct StreamIndex {
  int64_t value = 0;
  auto operator<=>(const StreamIndex&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// The number of stored tokens before a token of StoredTokens, in all files.
struct StoredIndex {
  int64_t value = 0;
  auto operator<=>(const StoredIndex&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// The number of tokens before a token in its own file.
struct FileIndex {
  int64_t value = 0;
};

/// The tokens of several files, one file after another, as one stream. An end-of-document token can
/// be added after a document that lacks one. A token has three indices, each of its own type:
///   - its StreamIndex is in [0, tokens()),
///   - its StoredIndex is in [0, stored()),
///   - its FileIndex is below the number of tokens in its file.
/// stream index = stored index + the number of added tokens before it, and
/// stored index = file_begins()[file] + file index. An added token has only a stream index.
///
/// The files are read where they are; at most a few hundred are open at a time. Reading is const
/// and may be done by many threads. Throws Error naming the file when it cannot be read or its size
/// has changed. Memory: 8 bytes for each added token.
class StoredTokens {
 public:
  StoredTokens(std::vector<TokenFile> files, const TokenIdRange& ids);

  /// Returns the number of tokens in all files, without added ones.
  int64_t stored() const { return begins_.back().value; }
  /// Returns the id of a stored token. Only one thread may call it, while the tokens are set up.
  /// Tokens that are close to each other are read from disk together.
  int64_t stored_token(StoredIndex token);
  /// Returns the index of each file's first token, and stored() as the last element.
  std::span<const StoredIndex> file_begins() const { return begins_; }

  /// Adds an end-of-document token before the stored token `next`, or at the end if that is
  /// stored(). Calls must come in ascending order of `next`.
  void add_end_of_document(StoredIndex next);
  /// Adds an end-of-document token before `next` unless the stored token before it is one.
  void ensure_end_of_document(StoredIndex next);
  int64_t added() const { return static_cast<int64_t>(added_.size()); }

  /// Returns the length of the stream: stored and added tokens together.
  int64_t tokens() const { return stored() + added(); }
  /// Reads the tokens of the stream from `first` on. Throws Error when an id is outside the
  /// vocabulary, naming the file and the file index.
  void read(StreamIndex first, std::span<int32_t> tokens) const;
  /// Returns the file and the file index of a token, for errors: "part-0.npy: token 17".
  std::string location(StreamIndex token) const;
  /// Asks the system to read `count` tokens from `first` on ahead.
  void will_need(StreamIndex first, int64_t count) const;

  /// Returns an XXH3-64 hash that tells these tokens from others. It covers sizes, types, samples
  /// of each file and the stream indices of added tokens. It does not cover every token.
  uint64_t sampled_hash() const;

 private:
  /// A range of tokens in one file.
  struct FileRange {
    size_t file;  // an index in files_
    FileIndex first;
    int64_t count;
  };
  /// A file that is open while the tokens are set up.
  struct SetupFile {
    size_t file;  // an index in files_
    std::shared_ptr<const ReadFile> opened;
    FileWindow window;
  };
  std::shared_ptr<const ReadFile> open(size_t file) const;
  /// Returns the range from `first` to the end of its file, but at most `limit` tokens.
  FileRange range_at(StoredIndex first, int64_t limit) const;
  /// Returns the number of added tokens before a token.
  size_t added_before(StreamIndex token) const;
  /// Reads the stored tokens from `first` on.
  void read_stored(StoredIndex first, std::span<int32_t> tokens) const;

  std::vector<TokenFile> files_;
  std::vector<StoredIndex> begins_;  // the index of each file's first token, and stored()
  std::vector<StreamIndex> added_;   // the indices of the added tokens, ascending
  TokenIdRange ids_;
  std::unique_ptr<LruCache<ReadFile>> opened_files_;  // by index in files_
  std::optional<SetupFile> setup_file_;               // the file that stored_token() read last
};

}  // namespace tessera
