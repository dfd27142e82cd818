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

/// Tokens of pieces of text: the vocabulary and its merges. Immutable after construction.
class BpeModel {
 public:
  /// Memory that encode() uses anew at each call; one thread at a time.
  struct Scratch {
    MergeTable::Scratch merge;
    std::vector<int32_t> tokens;
  };

  /// Takes vocabulary and merges of `description`. A piece that spells one of `control` is not that
  /// token as a whole. Throws Error naming `origin` when the vocabulary lacks a byte of UTF-8,
  /// without which text would be lost, or a token of a merge.
  BpeModel(const BpeDescription& description, const std::vector<int32_t>& control,
           const std::string& origin);

  /// Adds the tokens of `piece`, valid UTF-8.
  void encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& tokens) const;

  /// The tokens of `piece`, valid UTF-8 or a part of it, by merges alone: those of encode() unless
  /// the piece is one token as a whole. They stand in scratch.tokens.
  void merge(std::string_view piece, Scratch& scratch) const;

  /// Whether a byte or a merge is this token, so that text may become it.
  bool makes(int32_t id) const;

  /// Whether pieces may be tokens as a whole to which no merges lead.
  bool ignores_merges() const { return ignores_merges_; }
  /// The bytes that a token of merge() stands for.
  size_t length(int32_t id) const { return lengths_[static_cast<size_t>(id)]; }
  /// Of all tokens, in bytes.
  size_t longest() const { return longest_; }
  /// Whether a token that merges make, or a byte, goes on after `bytes`.
  bool begins_token(std::string_view bytes) const;

 private:
  void read_bytes(const BpeDescription& description, const std::string& origin);
  void read_merges(const BpeDescription& description, const std::string& origin);
  void read_pieces(const BpeDescription& description, const std::vector<int32_t>& control);

  std::array<int32_t, 256> byte_ids_{};  // kNone where a byte has no token
  std::vector<int32_t> merged_ids_;      // sorted
  std::vector<uint32_t> lengths_;        // by id, 0 where a token spells no bytes
  size_t longest_ = 1;
  std::vector<std::string> spelled_;  // the bytes of tokens that merges make, sorted
  bool ignores_merges_;
  MergeTable merges_;
  ByteStringMap pieces_;  // pieces that are one token: most of those of ordinary text
};

}  // namespace tessera
