#pragma once

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
#include "data/lately_used.h"

namespace tessera {

/// Bytes of an id. Ids in files are little-endian.
int64_t token_type_bytes(TokenType type);

/// A file that consists of token ids from `data_offset` on.
struct TokenFile {
  fs::path path;
  int64_t bytes = 0;        // of the whole file
  int64_t data_offset = 0;  // bytes
  TokenType type = TokenType::u16;
  int64_t tokens = 0;
};

/// The valid ids, and the id that ends a document.
struct TokenRange {
  int64_t vocabulary_size = 0;
  int32_t end_of_document = 0;
};

/// The tokens of several files, one file after another. An end-of-document token can be added where
/// a document lacks one. The files are read where they are; at most a few hundred are open at a
/// time. Reading is const and may be done by many threads. Throws Error naming the file when it
/// cannot be read or its size has changed. Memory: 8 bytes for each added token.
class StoredTokens {
 public:
  StoredTokens(std::vector<TokenFile> files, const TokenRange& range);

  /// The number of tokens in all files, without added ones.
  int64_t stored() const { return begins_.back(); }
  /// Returns the stored id at a place of [0, stored()). For one thread, while the tokens are set
  /// up. Places that are close to each other are read from disk together.
  int64_t stored_token(int64_t place);
  /// The places at which the files begin, counted in stored tokens, and the end.
  std::span<const int64_t> file_begins() const { return begins_; }

  /// Adds an end-of-document token after the first `stored` stored tokens. Calls must come in
  /// ascending order of `stored`.
  void add_end_of_document(int64_t stored);
  /// Adds one after the first `stored` stored tokens, unless the last of them is one.
  void end_document(int64_t stored);
  int64_t added() const { return static_cast<int64_t>(added_.size()); }

  /// The length of the stream: stored and added tokens together.
  int64_t tokens() const { return stored() + added(); }
  /// Reads [first, first + tokens.size()) of the stream. Throws Error when an id lies outside the
  /// vocabulary, naming the file and the place in it.
  void read(int64_t first, std::span<int32_t> tokens) const;
  /// Returns the place of a token of the stream, for errors: "part-0.npy: token 17".
  std::string place(int64_t token) const;
  /// Asks the system to read this part of the stream ahead.
  void will_need(int64_t first, int64_t count) const;

  /// Returns an XXH3-64 hash that tells these tokens from others. It covers sizes, types, samples
  /// of each file and the places of added tokens. It does not cover every token.
  uint64_t sampled_hash() const;

 private:
  struct Part {  // a part of one file
    size_t file;
    int64_t first;
    int64_t count;
  };
  struct LookedAt {
    size_t file;
    std::shared_ptr<const ReadFile> opened;
    FileWindow window;
  };
  std::shared_ptr<const ReadFile> open(size_t file) const;
  Part part_at(int64_t stored, int64_t most) const;
  /// Returns how many tokens were added before this place of the stream.
  size_t added_before(int64_t place) const;
  void read_stored(int64_t first, std::span<int32_t> tokens) const;

  std::vector<TokenFile> files_;
  std::vector<int64_t> begins_;
  std::vector<int64_t> added_;  // the places of added tokens in the stream
  TokenRange range_;
  std::unique_ptr<LatelyUsed<ReadFile>> open_;  // by index in files_
  std::optional<LookedAt> looked_at_;           // used by stored_token()
};

}  // namespace tessera
