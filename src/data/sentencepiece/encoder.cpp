#include "data/sentencepiece/encoder.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include <simdjson.h>

namespace tessera {
namespace {

bool occurs_in_text(PieceType type) {
  return type == PieceType::normal || type == PieceType::user_defined || type == PieceType::unused;
}

/// Whether the piece is text with a score, as every trained model's pieces are.
bool is_text(const SentencePiece& piece) {
  return std::isfinite(piece.score) &&
         simdjson::validate_utf8(piece.text.data(), piece.text.size());
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

}  // namespace

std::string SentencePieceEncoder::why_not(const SentencePieceDescription& description,
                                          const CharacterMap& character_map) {
  if (!std::ranges::all_of(description.pieces, is_text)) {
    return "a piece is broken UTF-8 or has a score that is not finite";
  }
  if (!character_map.makes_valid_utf8()) return "a replacement of characters is broken UTF-8";
  switch (description.algorithm) {
    case SentencePieceAlgorithm::unigram:
      if (SentencePieceUnigram::takes(description)) return "";
      return "its scores are no logarithms of probabilities";
    case SentencePieceAlgorithm::bpe:
      if (SentencePieceMerger::takes(description)) return "";
      return "it has pieces out of use or control pieces that text can spell";
    default:
      return "its pieces are whole words or single characters";
  }
}

std::unique_ptr<SentencePieceEncoder> SentencePieceEncoder::create(
    const SentencePieceDescription& description, CharacterMap character_map) {
  if (!why_not(description, character_map).empty()) return nullptr;
  return std::unique_ptr<SentencePieceEncoder>(
      new SentencePieceEncoder(description, std::move(character_map)));
}

SentencePieceEncoder::SentencePieceEncoder(const SentencePieceDescription& description,
                                           CharacterMap character_map)
    : symbols_(user_defined_symbols(description)),
      normalizer_(description, std::move(character_map), symbols_),
      unknown_(description),
      cuts_(total_size(description.pieces)) {
  for (const SentencePiece& piece : description.pieces) {
    if (occurs_in_text(piece.type)) cuts_.keep_whole(piece.text);
  }
  if (description.algorithm == SentencePieceAlgorithm::unigram) {
    unigram_.emplace(description, unknown_);
  } else {
    merger_.emplace(description, unknown_);
  }
}

std::vector<int32_t> SentencePieceEncoder::encode(std::string_view text, Scratch& scratch) const {
  std::vector<int32_t> tokens;
  tokens.reserve(text.size() / 3);
  normalizer_.normalize(text, scratch.normalized);
  if (merger_ && !symbols_.empty()) {
    encode_around_symbols(scratch.normalized, scratch, tokens);
  } else {
    float sum = 0;
    encode_words(scratch.normalized, sum, scratch, tokens);
  }
  return tokens;
}

void SentencePieceEncoder::encode_around_symbols(std::string_view text, Scratch& scratch,
                                                 std::vector<int32_t>& tokens) const {
  float sum = 0;  // of no meaning for merges
  size_t begin = 0;
  for (size_t end = 0; end < text.size();) {
    const ByteTrie::Match symbol = symbols_.longest_prefix(text.substr(end));
    if (symbol.length == 0) {
      end += character_size(text.substr(end));
      continue;
    }
    encode_words(text.substr(begin, end - begin), sum, scratch, tokens);
    tokens.push_back(symbol.value);
    end += symbol.length;
    begin = end;
  }
  encode_words(text.substr(begin), sum, scratch, tokens);
}

void SentencePieceEncoder::encode_words(std::string_view text, float& sum, Scratch& scratch,
                                        std::vector<int32_t>& tokens) const {
  while (!text.empty()) {
    const std::string_view word = text.substr(0, cuts_.first_word(text));
    encode_word(word, sum, scratch, tokens);
    text.remove_prefix(word.size());
  }
}

void SentencePieceEncoder::encode_word(std::string_view word, float& sum, Scratch& scratch,
                                       std::vector<int32_t>& tokens) const {
  if (word.size() > WordCache::kLongestWord) {
    if (unigram_) {
      unigram_->encode(word, sum, scratch.unigram, tokens);
    } else {
      merger_->encode(word, scratch.merger, tokens);
    }
    return;
  }
  WordCache::Entry& entry = scratch.words.place(word);
  if (entry.holds(word) && append_known(entry, sum, tokens)) return;
  const size_t before = tokens.size();
  const bool known = unigram_ ? unigram_->encode(word, sum, scratch.unigram, tokens)
                              : merger_->encode(word, scratch.merger, tokens);
  const auto added = std::span<const int32_t>(tokens).subspan(before);
  // Unknown characters: scores and joined tokens depend on what stood before.
  if (!known || !WordCache::fits(word, added.size())) return;
  const float limit =
      unigram_ ? unigram_->limit(word, scratch.unigram) : std::numeric_limits<float>::infinity();
  if (-sum < limit) WordCache::store(entry, word, added, limit);
}

/// Adds the tokens of a word that was met before; false where they might be others here.
bool SentencePieceEncoder::append_known(const WordCache::Entry& entry, float& sum,
                                        std::vector<int32_t>& tokens) const {
  if (unigram_) {
    float after = sum;
    for (const int32_t token : entry.tokens()) unigram_->add(token, after);
    if (!(-after < entry.limit)) return false;
    sum = after;
  }
  for (const int32_t token : entry.tokens()) tokens.push_back(token);
  return true;
}

}  // namespace tessera
