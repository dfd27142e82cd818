#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tessera {

/// A token of a tokenizer.json that is searched for in a text before the text is split and merged.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;      ///< a control token, which no text may produce
  bool single_word = false;  ///< matches only without a letter, digit or underscore beside it
  bool strip_left = false;   ///< includes the white space before it
  bool strip_right = false;  ///< includes the white space after it
  bool normalized = false;   ///< searched for after normalisation, otherwise before
  bool operator==(const AddedToken&) const = default;
};

/// One step that cuts text into pieces: the matches of a pattern, and the gaps between them.
struct SplitStep {
  std::string pattern;     ///< in the syntax of tokenizer.json (see pattern_for_pcre2())
  bool keeps_gaps = true;  ///< a gap is a piece too; otherwise its text is dropped
  bool operator==(const SplitStep&) const = default;
};

/// Two tokens, as spelled in the vocabulary, that merge into one.
using MergePair = std::pair<std::string, std::string>;

/// All that decides which tokens a byte-pair encoding gives for a text.
struct BpeDescription {
  /// True if the encoding merges characters, as SentencePiece does, and not bytes. Tokens are then
  /// spelled in text with U+2581 for each space, and a character without a token becomes the tokens
  /// of its bytes, <0x00> to <0xFF>. All text between added tokens is one piece.
  bool byte_fallback = false;
  /// Tokens and their ids, sorted by id. Those of a byte-level encoding are spelled in symbols of
  /// bytes (see token_spelling.h). Added tokens may be among them. Ids may have gaps.
  std::vector<std::pair<std::string, int32_t>> vocabulary;
  std::vector<MergePair> merges;  ///< in order of priority, the highest first
  /// A piece that is a token as a whole becomes that token, even if no merges lead to it.
  bool ignores_merges = false;
  bool normalizes_nfc = false;
  /// Text that does not start with a space gets one in front.
  bool adds_prefix_space = false;
  std::vector<SplitStep> splits;  ///< each cuts the pieces of the step before it
  std::vector<AddedToken> added_tokens;
};

}  // namespace tessera
