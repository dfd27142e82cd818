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
#include "data/lately_used.h"

namespace tessera {

/// The element types in which others store token ids, little-endian.
enum class TokenType { u16, u32, i32, i64 };

/// "uint16", "uint32", "int32", "int64".
std::string_view token_type_name(TokenType type);
int64_t token_type_bytes(TokenType type);

/// A file that holds nothing but token ids from `data_offset` on.
struct TokenFile {
  fs::path path;
  int64_t bytes = 0;        // of the whole file
  int64_t data_offset = 0;  // bytes
  TokenType type = TokenType::u16;
  int64_t tokens = 0;
};

/// Which ids are tokens, and which of them ends a document.
struct TokenRange {
  int64_t vocabulary_size = 0;
  int32_t end_of_document = 0;
};

/// The tokens of several files one after another, with end-of-document tokens put in where
/// documents lack theirs. The files are read where they are, a few hundred of them open at a time.
/// Reading is const and may be done by many threads; a file that cannot be read, or is not of the
/// size that it had, is an Error that names it. Memory: 8 bytes for each token put in.
class StoredTokens {
 public:
  StoredTokens(std::vector<TokenFile> files, const TokenRange& range);

  /// All files together, without what is put in.
  int64_t stored() const { return begins_.back(); }
  /// The id at a place of [0, stored()), as the file has it. For one thread, while the tokens are
  /// set up: neighbours that are looked at one after another are read together.
  int64_t stored_token(int64_t place);
  /// The places, counted in stored tokens, that files begin at; one more for the end.
  std::span<const int64_t> file_begins() const { return begins_; }

  /// Puts an end-of-document token behind the first `stored` tokens. Called for growing `stored`.
  void add_end_of_document(int64_t stored);
  /// Puts one behind the first `stored` tokens if the last of them is none.
  void end_document(int64_t stored);
  int64_t added() const { return static_cast<int64_t>(added_.size()); }

  /// The length of the stream: stored and added tokens.
  int64_t tokens() const { return stored() + added(); }
  /// Reads [first, first + tokens.size()) of the stream. Throws Error naming the file and the
  /// place in it of an id outside the vocabulary.
  void read(int64_t first, std::span<int32_t> tokens) const;
  /// Where a token of the stream stands, for errors: "part-0.npy: token 17".
  std::string place(int64_t token) const;
  /// Asks the system to read this part of the stream ahead of its use.
  void will_need(int64_t first, int64_t count) const;

  /// XXH3-64 over what tells these tokens from others: sizes, types, samples of each file and the
  /// places of added tokens. It does not read everything.
  uint64_t sampled_hash() const;

 private:
  struct Part {  // of one file
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
  /// How many tokens were added before this place of the stream.
  size_t added_before(int64_t place) const;
  void read_stored(int64_t first, std::span<int32_t> tokens) const;

  std::vector<TokenFile> files_;
  std::vector<int64_t> begins_;
  std::vector<int64_t> added_;  // their places in the stream
  TokenRange range_;
  std::unique_ptr<LatelyUsed<ReadFile>> open_;  // by their places in files_
  std::optional<LookedAt> looked_at_;           // by stored_token()
};

}  // namespace tessera
