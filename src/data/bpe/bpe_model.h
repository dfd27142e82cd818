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

  /// Whether a byte or a merge is this token, so that text may become it.
  bool makes(int32_t id) const;

 private:
  void read_bytes(const BpeDescription& description, const std::string& origin);
  void read_merges(const BpeDescription& description, const std::string& origin);
  void read_pieces(const BpeDescription& description, const std::vector<int32_t>& control);
  /// The tokens of `piece` by merges.
  void merge(std::string_view piece, Scratch& scratch) const;

  std::array<int32_t, 256> byte_ids_{};  // kNone where a byte has no token
  std::vector<int32_t> merged_ids_;      // sorted
  MergeTable merges_;
  ByteStringMap pieces_;  // pieces that are one token: most of those of ordinary text
};

}  // namespace tessera
