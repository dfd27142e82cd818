#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "data/bpe/added_token.h"

namespace tessera {

/// One cut of text into pieces.
struct SplitStep {
  std::string pattern;     ///< in the syntax of tokenizer.json (see pattern_for_pcre2())
  bool keeps_rest = true;  ///< whether what lies between two matches is a piece too, or is dropped

  bool operator==(const SplitStep&) const = default;
};

/// Two tokens, as the vocabulary spells them, that become one.
using MergePair = std::pair<std::string, std::string>;

/// All that decides which tokens a byte-level byte-pair encoding gives a text.
struct BpeDescription {
  /// Tokens in symbols of bytes (see byte_alphabet.h) and their ids, sorted by id; added tokens may
  /// stand among them. Ids need not be without holes.
  std::vector<std::pair<std::string, int32_t>> vocabulary;
  std::vector<MergePair> merges;  ///< the most urgent first
  /// A piece that is a token as a whole is that token, whether or not merges lead there.
  bool ignores_merges = false;
  bool normalizes_nfc = false;
  /// Text that does not start with a space gets one.
  bool adds_prefix_space = false;
  std::vector<SplitStep> splits;  ///< each cuts the pieces of the one before
  std::vector<AddedToken> added_tokens;
};

}  // namespace tessera
