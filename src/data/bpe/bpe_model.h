#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/bpe/bpe_description.h"
#include "data/bpe/byte_string_map.h"
#include "data/bpe/merge_table.h"

namespace tessera {

/// A model that turns pieces of text into tokens by its vocabulary and merges. Immutable.
class BpeModel {
 public:
  /// Memory that encode() reuses in each call. One thread at a time may use it.
  struct Scratch {
    MergeTable::Scratch merge;
    std::vector<int32_t> tokens;
  };

  /// Uses the vocabulary and the merges of `description`. A piece that spells a token of `control`
  /// does not become that token as a whole. Throws Error naming `origin` when the vocabulary lacks
  /// a byte of UTF-8, which would lose text, or a token of a merge, and when a merge contains the
  /// token of a byte that characters fall back to.
  BpeModel(const BpeDescription& description, const std::vector<int32_t>& control,
           const std::string& origin);

  /// Appends the tokens of `piece`, valid UTF-8.
  void encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& tokens) const;

  /// Encodes `piece`, valid UTF-8 or a part of it, by merges alone and leaves the tokens in
  /// scratch.tokens. encode() gives the same tokens unless the piece is one token as a whole.
  void merge(std::string_view piece, Scratch& scratch) const;
  /// Returns whether a byte, a character or a merge gives this token.
  bool text_may_become(int32_t id) const;
  /// Returns whether a piece may be a token as a whole even if no merges lead to that token.
  bool ignores_merges() const { return ignores_merges_; }
  /// Returns the number of bytes that a token of merge() stands for.
  size_t byte_length(int32_t id) const { return byte_lengths_[static_cast<size_t>(id)]; }
  /// Returns the length of the longest token in bytes.
  size_t longest_token() const { return longest_token_; }
  /// Returns whether a token that merges make begins with `bytes` and is longer.
  bool is_token_prefix(std::string_view bytes) const;

 private:
  void read_symbols(const BpeDescription& description, const std::string& origin);
  void require_bytes(const BpeDescription& description, const std::string& origin) const;
  void read_merges(const BpeDescription& description, const std::string& origin);
  void read_pieces(const BpeDescription& description, const std::vector<int32_t>& control);

  /// Appends the tokens that merging begins with: one per byte, or per character if it has one.
  void append_symbols(std::string_view piece, std::vector<int32_t>& tokens) const;

  bool byte_fallback_;
  std::array<int32_t, 256> byte_ids_{};  // kNone if a byte has no token
  ByteStringMap characters_;             // with byte fallback: the characters that are tokens
  std::vector<int32_t> character_ids_;   // the ids of those characters
  std::vector<int32_t> merged_ids_;      // sorted
  std::vector<uint32_t> byte_lengths_;   // by id; 0 if a token spells no bytes
  size_t longest_token_ = 1;
  std::vector<std::string> merged_spellings_;  // the bytes of the tokens that merges make, sorted
  bool ignores_merges_;
  MergeTable merges_;
  ByteStringMap pieces_;  // pieces that are one token, as most pieces of ordinary text are
};

}  // namespace tessera
