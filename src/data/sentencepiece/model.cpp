#include "data/sentencepiece/model.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <simdjson.h>

#include "base/error.h"
#include "data/sentencepiece/character_map.h"
#include "data/sentencepiece/utf8_character.h"

namespace tessera {
namespace {

bool occurs_in_text(const SentencePiece& piece) {
  return piece.type == PieceType::normal || piece.type == PieceType::user_defined ||
         piece.type == PieceType::unused;
}

bool is_valid_utf8(const SentencePiece& piece) {
  return simdjson::validate_utf8(piece.text.data(), piece.text.size());
}

/// Reads the file and checks what the library does not check.
SentencePieceDescription read_checked(std::string_view file, const std::string& origin) {
  SentencePieceDescription description = read_sentencepiece_description(file, origin);
  for (size_t id = 0; id < description.pieces.size(); ++id) {
    if (!std::isfinite(description.pieces[id].score)) {
      throw Error("{} is damaged: the score of its piece {} is {}; expected a finite number",
                  origin, id, description.pieces[id].score);
    }
  }
  if (!CharacterMap(description.character_map, origin).makes_valid_utf8()) {
    throw Error("{} is damaged: its precompiled_charsmap makes text of broken UTF-8", origin);
  }
  return description;
}

ByteTrie user_defined_symbols(const SentencePieceDescription& description) {
  std::vector<ByteTrie::Key> keys;
  for (size_t id = 0; id < description.pieces.size(); ++id) {
    const SentencePiece& piece = description.pieces[id];
    if (piece.type == PieceType::user_defined) {
      keys.push_back({piece.text, static_cast<int32_t>(id)});
    }
  }
  return ByteTrie(std::move(keys));
}

size_t total_size(const std::vector<SentencePiece>& pieces) {
  size_t size = 0;
  for (const SentencePiece& piece : pieces) size += piece.text.size();
  return size;
}

std::string why_not_merged(const SentencePieceDescription& description) {
  if (!std::ranges::all_of(description.pieces, is_valid_utf8)) {
    return "a piece is broken UTF-8";
  }
  if (!SentencePieceMerger::supports(description)) {
    return "it has pieces out of use or control pieces that text can spell";
  }
  return "";
}

}  // namespace

SentencePieceModel::SentencePieceModel(std::string_view file, const std::string& origin)
    : description_(read_checked(file, origin)),
      library_(file, origin),
      symbols_(user_defined_symbols(description_)),
      normalizer_(description_, CharacterMap(description_.character_map, origin), symbols_),
      unknown_(description_),
      cuts_(total_size(description_.pieces)) {
  for (const SentencePiece& piece : description_.pieces) {
    // Text is valid UTF-8 and is cut between characters, so it contains no broken piece.
    if (!occurs_in_text(piece) || !is_valid_utf8(piece)) continue;
    cuts_.keep_whole(piece.text);
    longest_piece_ = std::max(longest_piece_, piece.text.size());
  }
  if (description_.algorithm == SentencePieceAlgorithm::bpe) {
    why_slow_ = why_not_merged(description_);
    if (why_slow_.empty()) merger_.emplace(description_, unknown_);
  }
  if (!merger_) {
    normalized_library_ =
        std::make_unique<SentencePieceLibrary>(model_of_normalized_text(file, origin), origin);
  }
}

std::unique_ptr<StretchEncoder> SentencePieceModel::stretch_encoder() const {
  return merger_ ? merger_->stretch_encoder() : normalized_library_->stretch_encoder(unknown_);
}

bool SentencePieceModel::prefixes_have_same_tokens() const {
  return merger_ || description_.algorithm == SentencePieceAlgorithm::unigram;
}

size_t SentencePieceModel::first_word_length(std::string_view text, size_t begin) const {
  if (description_.algorithm != SentencePieceAlgorithm::word)
    return cuts_.first_word_length(text, begin);
  const size_t after = begin + character_size(text.substr(begin));
  return std::min(text.find(kSpaceMark, after), text.size());
}

}  // namespace tessera
