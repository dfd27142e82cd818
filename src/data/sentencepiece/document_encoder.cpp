#include "data/sentencepiece/document_encoder.h"

#include <algorithm>
#include <cstring>

#include "base/utf8.h"
#include "data/sentencepiece/long_stretch.h"
#include "data/sentencepiece/utf8_character.h"

namespace tessera {
namespace {

constexpr size_t kPortion = size_t{16} << 10;  // bytes to normalise at once
constexpr size_t kBeforeLandmark = sizeof(uint64_t);
constexpr int kLandmarkBits = 8;  // one offset in 256
/// The number of bytes without a landmark after which every end of a stretch is a boundary.
constexpr size_t kLandmarksAreRare = size_t{16} << 10;

/// Returns whether `offset` is a landmark: the bytes just before it, none of which is before
/// `begin`, have a hash that occurs at about one offset in 256. Every reader of the text finds the
/// same landmarks, wherever it began.
bool is_landmark(std::string_view text, size_t begin, size_t offset) {
  if (offset < begin + kBeforeLandmark) return false;
  uint64_t bytes = 0;
  std::memcpy(&bytes, text.data() + offset - kBeforeLandmark, kBeforeLandmark);
  return (bytes ^ bytes >> 29) * 0x9E3779B97F4A7C15ULL >> (64 - kLandmarkBits) == 0;
}

}  // namespace

SentencePieceDocumentEncoder::SentencePieceDocumentEncoder(
    const SentencePieceModel& model, const std::vector<int32_t>& space_mark_bytes)
    : model_(model),
      space_mark_bytes_(space_mark_bytes),
      longest_stretch_(longest_stretch(model)),
      stretches_(model.stretches()),
      text_(model.normalizer()) {
  begin(true);
}

void SentencePieceDocumentEncoder::begin(bool starts_document) {
  added_ = given_ = 0;
  tokens_.clear();
  has_last_ = false;
  begin_text(starts_document);
}

void SentencePieceDocumentEncoder::add(std::string_view piece, std::vector<int32_t>& ids,
                                       std::vector<Boundary>& boundaries) {
  while (!space_mark_bytes_.empty()) {
    const size_t mark = piece.find(kSpaceMark);
    if (mark == std::string_view::npos) break;
    add_text(piece.substr(0, mark), boundaries);
    finish_text(boundaries);
    tokens_.insert(tokens_.end(), space_mark_bytes_.begin(), space_mark_bytes_.end());
    added_ += static_cast<int64_t>(kSpaceMark.size());
    piece.remove_prefix(mark + kSpaceMark.size());
    begin_text(true);
  }
  add_text(piece, boundaries);
  give(ids);
}

void SentencePieceDocumentEncoder::finish(std::vector<int32_t>& ids,
                                          std::vector<Boundary>& boundaries) {
  finish_text(boundaries);
  give(ids);
  boundaries.push_back({added_, given_});
}

void SentencePieceDocumentEncoder::begin_text(bool starts) {
  text_.begin(starts);
  begin_ = last_cut_ = scanned_ = without_symbol_ = since_landmark_ = 0;
  whole_ = starts;
  text_begin_ = added_;
}

void SentencePieceDocumentEncoder::add_text(std::string_view piece,
                                            std::vector<Boundary>& boundaries) {
  while (!piece.empty()) {
    const size_t end = next_character(piece, std::min(piece.size(), kPortion));
    text_.add(piece.substr(0, end));
    added_ += static_cast<int64_t>(end);
    piece.remove_prefix(end);
    encode_certain(false, boundaries);
    drop_encoded();
  }
}

void SentencePieceDocumentEncoder::finish_text(std::vector<Boundary>& boundaries) {
  text_.finish();
  encode_certain(true, boundaries);
}

/// Encodes all text whose tokens later text cannot change; all text if the text ends.
void SentencePieceDocumentEncoder::encode_certain(bool ends, std::vector<Boundary>& boundaries) {
  const std::string_view text = text_.text();
  const ByteTrie& symbols = model_.symbols_apart();
  if (symbols.empty()) {
    encode_certain_before(text.size(), ends, boundaries);
    return;
  }
  while (without_symbol_ < text.size()) {
    const ByteTrie::Match symbol = symbols.longest_prefix(text.substr(without_symbol_));
    if (symbol.open && !ends) break;
    if (symbol.length == 0) {
      without_symbol_ += character_size(text.substr(without_symbol_));
      continue;
    }
    encode_certain_before(without_symbol_, true, boundaries);
    tokens_.push_back(symbol.value);
    begin_ = scanned_ = without_symbol_ += symbol.length;
  }
  encode_certain_before(without_symbol_, ends, boundaries);
}

/// Encodes the part of the text before `end` whose tokens later text cannot change. That text has
/// no symbol that is encoded apart. The result depends only on the text, not on how much of it is
/// known at a time.
void SentencePieceDocumentEncoder::encode_certain_before(size_t end, bool ends,
                                                         std::vector<Boundary>& boundaries) {
  const std::string_view text = text_.text().substr(0, end);
  while (begin_ < text.size()) {
    const bool is_long = text.size() - begin_ > longest_stretch_;
    size_t limit = is_long ? begin_ + longest_stretch_ : text.size();
    if (is_long) limit = character_begin(text, limit);
    const size_t cut = model_.first_word(text.substr(0, limit), scanned_);
    if (cut < limit) {
      scanned_ = cut;
      if (model_.adds_scores() && (whole_ || !is_landmark(text, begin_, cut))) {
        last_cut_ = cut;
        continue;
      }
      encode_to(cut);
      note_boundary(boundaries);
    } else if (!is_long) {
      scanned_ = character_begin(text, text.size() - 1);
      break;
    } else if (last_cut_ > begin_) {
      encode_to(last_cut_);
      note_boundary(boundaries);
    } else {
      encode_some(text.substr(begin_, limit - begin_));
    }
  }
  if (ends && begin_ < text.size()) encode_to(text.size());
}

void SentencePieceDocumentEncoder::encode_to(size_t end) {
  stretches_->encode(text_.text().substr(begin_, end - begin_), tokens_);
  since_landmark_ += end - begin_;
  begin_ = scanned_ = end;
  whole_ = false;
}

/// Encodes the first part of a stretch in which no word ends.
void SentencePieceDocumentEncoder::encode_some(std::string_view stretch) {
  const UnknownText& unknown = model_.unknown();
  for (const StretchEncoder::Token& token : first_tokens(stretch, model_, *stretches_)) {
    const bool joins = !tokens_.empty() && tokens_.back() == token.id && unknown.joins(token.id);
    if (!joins) tokens_.push_back(token.id);
    scanned_ = begin_ + token.end;
  }
  begin_ = scanned_;
  whole_ = false;
}

/// Reports the offset up to which the text is encoded, if it is a boundary.
void SentencePieceDocumentEncoder::note_boundary(std::vector<Boundary>& boundaries) {
  if (!model_.adds_scores()) {
    const bool landmark = is_landmark(text_.text(), 0, begin_);
    if (!landmark && since_landmark_ < kLandmarksAreRare) return;
    if (landmark) since_landmark_ = 0;
  }
  if (model_.unknown().joins(tokens_.back())) return;  // the next token may join it
  const std::optional<int64_t> original = text_.original(begin_);
  if (!original) return;
  const auto fresh = static_cast<int64_t>(tokens_.size()) - (has_last_ ? 1 : 0);
  boundaries.push_back({text_begin_ + *original, given_ + fresh});
}

void SentencePieceDocumentEncoder::give(std::vector<int32_t>& ids) {
  if (tokens_.empty()) return;
  const auto first = tokens_.begin() + (has_last_ ? 1 : 0);
  given_ += tokens_.end() - first;
  ids.insert(ids.end(), first, tokens_.end());
  tokens_ = {tokens_.back()};
  has_last_ = true;
}

void SentencePieceDocumentEncoder::drop_encoded() {
  if (begin_ <= kBeforeLandmark) return;
  const size_t count = begin_ - kBeforeLandmark;
  text_.drop(count);
  begin_ -= count;
  scanned_ -= count;
  last_cut_ = std::max(last_cut_, begin_ + count) - count;
  without_symbol_ = std::max(without_symbol_, begin_ + count) - count;
}

}  // namespace tessera
