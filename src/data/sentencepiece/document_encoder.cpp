#include "data/sentencepiece/document_encoder.h"

#include <algorithm>
#include <cstring>

#include "base/utf8.h"
#include "data/sentencepiece/utf8_character.h"

// add() normalises text (NormalizedText), encode_certain() encodes what later text cannot change,
// give_tokens() hands out the ids. first_tokens() cuts stretches in which no word ends for 32 KiB.

namespace tessera {
namespace {

constexpr size_t kPortion = size_t{16} << 10;  // bytes to normalise at once
constexpr size_t kBeforeLandmark = sizeof(uint64_t);
constexpr int kLandmarkBits = 8;  // one offset in 256
/// The number of bytes without a landmark after which every end of a stretch is a boundary.
constexpr size_t kLandmarksAreRare = size_t{16} << 10;

/// Returns whether `offset` is a landmark: the eight bytes before it have a hash (by 2^64 / golden
/// ratio) that occurs at about one offset in 256. Every reader of the text finds the same
/// landmarks, wherever it began. An offset less than eight bytes after `begin` is no landmark.
bool is_landmark(std::string_view text, size_t begin, size_t offset) {
  if (offset < begin + kBeforeLandmark) return false;
  uint64_t bytes = 0;
  std::memcpy(&bytes, text.data() + offset - kBeforeLandmark, kBeforeLandmark);
  return (bytes ^ bytes >> 29) * 0x9E3779B97F4A7C15ULL >> (64 - kLandmarkBits) == 0;
}

constexpr size_t kLongStretch = size_t{32} << 10;  // bytes
constexpr size_t kLongestCompared = 1024;          // bytes of a piece; longer ones are slow to find
constexpr size_t kSearchedBytes = 64;              // bytes in which the best offset is sought
constexpr size_t kMaxBeginnings = 16;              // texts to compare

/// Returns the end of the longest piece that begins at `begin`, or `begin` if there is none.
size_t longest_piece_end(std::string_view text, size_t begin, const SentencePieceModel& model) {
  size_t reached = begin;
  size_t end = begin;
  while (end < text.size()) {
    end += character_size(text.substr(end));
    if (end - begin > model.longest_piece()) break;
    if (model.is_piece(text.substr(begin, end - begin))) reached = end;
  }
  return reached;
}

/// Returns offsets of `stretch`. Whatever text follows, a token ends at one of them. The last is an
/// offset near the end that the fewest pieces span. The others are the starts of those pieces.
std::vector<size_t> possible_ends(std::string_view stretch, const SentencePieceModel& model) {
  const size_t longest = model.longest_piece();
  std::vector<size_t> begins;
  std::vector<size_t> piece_ends;
  size_t offset = character_begin(stretch, stretch.size() - 2 * longest - kSearchedBytes);
  const size_t first = character_begin(stretch, stretch.size() - longest - kSearchedBytes);
  const size_t last = character_begin(stretch, stretch.size() - longest);
  for (; offset <= last; offset += character_size(stretch.substr(offset))) {
    begins.push_back(offset);
    piece_ends.push_back(longest_piece_end(stretch, offset, model));
  }
  std::vector<size_t> fewest;
  for (size_t i = 0; i < begins.size(); ++i) {
    if (begins[i] < first) continue;
    std::vector<size_t> ends;
    for (size_t j = 0; j < i; ++j) {
      if (piece_ends[j] > begins[i]) ends.push_back(begins[j]);
    }
    ends.push_back(begins[i]);
    if (fewest.empty() || ends.size() < fewest.size()) fewest = ends;
  }
  return fewest;
}

/// Encodes the beginnings of `stretch` up to each of `ends`. Returns the tokens with which all of
/// the results begin. The last token does not end within a character.
std::vector<StretchEncoder::Token> common_tokens(std::string_view stretch,
                                                 const std::vector<size_t>& ends,
                                                 StretchEncoder& encoder) {
  auto tokens = encoder.encode_with_ends(stretch.substr(0, ends.front()));
  for (size_t i = 1; i < ends.size(); ++i) {
    const auto others = encoder.encode_with_ends(stretch.substr(0, ends[i]));
    tokens.erase(std::ranges::mismatch(tokens, others).in1, tokens.end());
  }
  const auto is_last_of_character = [&](size_t i) {
    return tokens[i].end > (i == 0 ? 0 : tokens[i - 1].end);
  };
  while (!tokens.empty() && !is_last_of_character(tokens.size() - 1)) tokens.pop_back();
  return tokens;
}

/// Returns the length of the longest stretch that is held back to be encoded at once. It is far
/// longer than the text that decides a token.
size_t longest_stretch(const SentencePieceModel& model) {
  return std::max(kLongStretch, 4 * model.longest_piece());
}

/// Returns the tokens of the beginning of `stretch`: half of it or more. `stretch` is as long as
/// longest_stretch() allows, and no word ends in it.
///
/// In unigram models and byte-pair encodings, the tokens up to the end of any token are those of
/// the text up to that end alone. Take an offset near the end of the stretch. Whatever follows, a
/// token ends at this offset or spans it. So the tokens of the whole text begin with those of the
/// text up to this offset, or up to the start of a piece that spans it. There are few such texts.
/// The tokens with which all of them begin are certain.
///
/// The texts may have too few tokens in common. For example, a unigram model can split a long run
/// of one character in many equally probable ways, and the last character decides between them. The
/// stretch is then cut without regard to what follows. The same is done when the pieces are too
/// long or the texts too many to compare, and with other algorithms unless there is only one text.
std::vector<StretchEncoder::Token> first_tokens(std::string_view stretch,
                                                const SentencePieceModel& model,
                                                StretchEncoder& encoder) {
  if (model.longest_piece() <= kLongestCompared) {
    const std::vector<size_t> ends = possible_ends(stretch, model);
    if (ends.size() == 1 || (model.prefixes_have_same_tokens() && ends.size() <= kMaxBeginnings)) {
      auto tokens = common_tokens(stretch, ends, encoder);
      if (!tokens.empty() && tokens.back().end >= stretch.size() / 2) return tokens;
    }
  }
  // What is left of the stretch is longer than every piece, so two parts of an unknown word are
  // both unknown.
  const size_t end = character_begin(stretch, stretch.size() - model.longest_piece() - 1);
  return encoder.encode_with_ends(stretch.substr(0, end));
}

}  // namespace

SentencePieceDocumentEncoder::SentencePieceDocumentEncoder(
    const SentencePieceModel& model, const std::vector<int32_t>& space_mark_bytes)
    : model_(model),
      space_mark_bytes_(space_mark_bytes),
      longest_stretch_(longest_stretch(model)),
      stretch_encoder_(model.stretch_encoder()),
      text_(model.normalizer()) {
  begin(true);
}

void SentencePieceDocumentEncoder::begin(bool starts_document) {
  bytes_added_ = ids_given_ = 0;
  tokens_.clear();
  first_is_given_ = false;
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
    bytes_added_ += static_cast<int64_t>(kSpaceMark.size());
    piece.remove_prefix(mark + kSpaceMark.size());
    begin_text(true);
  }
  add_text(piece, boundaries);
  give_tokens(ids);
}

void SentencePieceDocumentEncoder::finish(std::vector<int32_t>& ids,
                                          std::vector<Boundary>& boundaries) {
  finish_text(boundaries);
  give_tokens(ids);
  boundaries.push_back({bytes_added_, ids_given_});
}

void SentencePieceDocumentEncoder::begin_text(bool starts) {
  text_.begin(starts);
  unencoded_begin_ = last_cut_ = scanned_end_ = symbol_free_end_ = bytes_since_landmark_ = 0;
  in_first_stretch_ = starts;
  text_begin_ = bytes_added_;
}

void SentencePieceDocumentEncoder::add_text(std::string_view piece,
                                            std::vector<Boundary>& boundaries) {
  while (!piece.empty()) {
    const size_t end = next_character(piece, std::min(piece.size(), kPortion));
    text_.add(piece.substr(0, end));
    bytes_added_ += static_cast<int64_t>(end);
    piece.remove_prefix(end);
    encode_certain(false, boundaries);
    drop_encoded();
  }
}

void SentencePieceDocumentEncoder::finish_text(std::vector<Boundary>& boundaries) {
  text_.finish();
  encode_certain(true, boundaries);
}

/// Encodes the text whose tokens later text cannot change. If the text `ends`, that is all of it.
void SentencePieceDocumentEncoder::encode_certain(bool ends, std::vector<Boundary>& boundaries) {
  const std::string_view text = text_.text();
  const ByteTrie& symbols = model_.symbols_apart();
  if (symbols.empty()) {
    encode_certain_before(text.size(), ends, boundaries);
    return;
  }
  while (symbol_free_end_ < text.size()) {
    const ByteTrie::Match symbol = symbols.longest_prefix(text.substr(symbol_free_end_));
    if (symbol.may_be_longer && !ends) break;
    if (symbol.length == 0) {
      symbol_free_end_ += character_size(text.substr(symbol_free_end_));
      continue;
    }
    encode_certain_before(symbol_free_end_, true, boundaries);
    tokens_.push_back(symbol.value);
    unencoded_begin_ = scanned_end_ = symbol_free_end_ += symbol.length;
  }
  encode_certain_before(symbol_free_end_, ends, boundaries);
}

/// Encodes the part of the text before `end` whose tokens later text cannot change. That text
/// contains no symbol that is encoded apart. The result depends only on the text, not on how much
/// of it is known at a time.
void SentencePieceDocumentEncoder::encode_certain_before(size_t end, bool ends,
                                                         std::vector<Boundary>& boundaries) {
  const std::string_view text = text_.text().substr(0, end);
  while (unencoded_begin_ < text.size()) {
    const bool is_long = text.size() - unencoded_begin_ > longest_stretch_;
    size_t limit = is_long ? unencoded_begin_ + longest_stretch_ : text.size();
    if (is_long) limit = character_begin(text, limit);
    const size_t cut = model_.first_word_length(text.substr(0, limit), scanned_end_);
    if (cut < limit) {
      scanned_end_ = cut;
      if (model_.adds_scores() &&
          (in_first_stretch_ || !is_landmark(text, unencoded_begin_, cut))) {
        last_cut_ = cut;
        continue;
      }
      encode_to(cut);
      report_boundary(boundaries);
    } else if (!is_long) {
      scanned_end_ = character_begin(text, text.size() - 1);
      break;
    } else if (last_cut_ > unencoded_begin_) {
      encode_to(last_cut_);
      report_boundary(boundaries);
    } else {
      encode_first_tokens(text.substr(unencoded_begin_, limit - unencoded_begin_));
    }
  }
  if (ends && unencoded_begin_ < text.size()) encode_to(text.size());
}

void SentencePieceDocumentEncoder::encode_to(size_t end) {
  stretch_encoder_->encode(text_.text().substr(unencoded_begin_, end - unencoded_begin_), tokens_);
  bytes_since_landmark_ += end - unencoded_begin_;
  unencoded_begin_ = scanned_end_ = end;
  in_first_stretch_ = false;
}

/// Encodes the first part of a stretch in which no word ends.
void SentencePieceDocumentEncoder::encode_first_tokens(std::string_view stretch) {
  const UnknownText& unknown = model_.unknown();
  for (const StretchEncoder::Token& token : first_tokens(stretch, model_, *stretch_encoder_)) {
    const bool joins = !tokens_.empty() && tokens_.back() == token.id && unknown.joins(token.id);
    if (!joins) tokens_.push_back(token.id);
    scanned_end_ = unencoded_begin_ + token.end;
  }
  unencoded_begin_ = scanned_end_;
  in_first_stretch_ = false;
}

/// Reports the offset up to which the text is encoded, if it is a boundary.
void SentencePieceDocumentEncoder::report_boundary(std::vector<Boundary>& boundaries) {
  if (!model_.adds_scores()) {
    const bool landmark = is_landmark(text_.text(), 0, unencoded_begin_);
    if (!landmark && bytes_since_landmark_ < kLandmarksAreRare) return;
    if (landmark) bytes_since_landmark_ = 0;
  }
  if (model_.unknown().joins(tokens_.back())) return;  // the next token may join it
  const std::optional<int64_t> original = text_.original(unencoded_begin_);
  if (!original) return;
  const auto fresh = static_cast<int64_t>(tokens_.size()) - (first_is_given_ ? 1 : 0);
  boundaries.push_back({text_begin_ + *original, ids_given_ + fresh});
}

/// Hands out the new tokens. Keeps the last one, because the next unknown token may join it.
void SentencePieceDocumentEncoder::give_tokens(std::vector<int32_t>& ids) {
  if (tokens_.empty()) return;
  const auto first = tokens_.begin() + (first_is_given_ ? 1 : 0);
  ids_given_ += tokens_.end() - first;
  ids.insert(ids.end(), first, tokens_.end());
  tokens_ = {tokens_.back()};
  first_is_given_ = true;
}

/// Drops the encoded text, except for the bytes by which the next landmark is judged.
void SentencePieceDocumentEncoder::drop_encoded() {
  if (unencoded_begin_ <= kBeforeLandmark) return;
  const size_t count = unencoded_begin_ - kBeforeLandmark;
  text_.drop(count);
  unencoded_begin_ -= count;
  scanned_end_ -= count;
  last_cut_ = std::max(last_cut_, unencoded_begin_ + count) - count;
  symbol_free_end_ = std::max(symbol_free_end_, unencoded_begin_ + count) - count;
}

}  // namespace tessera
