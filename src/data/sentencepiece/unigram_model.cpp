#include "data/sentencepiece/unigram_model.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>

#include "data/sentencepiece/utf8_character.h"

namespace tessera {
namespace {

constexpr float kUnknownPenalty = 10;
/// Half the distance between neighbouring single-precision numbers, relative to them.
constexpr double kRounding = 0x1p-24;
constexpr double kNone = -std::numeric_limits<double>::infinity();
constexpr uint32_t kNoBegin = ~uint32_t{0};

/// The library's bounds of the scores of normal pieces.
struct Bounds {
  float smallest = FLT_MAX;
  float largest = FLT_MIN;
};

Bounds bounds_of(const SentencePieceDescription& description) {
  Bounds bounds;
  for (const SentencePiece& piece : description.pieces) {
    if (piece.type != PieceType::normal) continue;
    bounds.smallest = std::min(bounds.smallest, piece.score);
    bounds.largest = std::max(bounds.largest, piece.score);
  }
  return bounds;
}

}  // namespace

bool SentencePieceUnigram::takes(const SentencePieceDescription& description) {
  const Bounds bounds = bounds_of(description);
  return bounds.smallest <= 0 && bounds.largest <= FLT_MIN;
}

SentencePieceUnigram::SentencePieceUnigram(const SentencePieceDescription& description,
                                           const UnknownText& unknown)
    : unknown_(unknown) {
  const Bounds bounds = bounds_of(description);
  unknown_score_ = bounds.smallest - kUnknownPenalty;
  std::vector<ByteTrie::Key> keys;
  for (size_t id = 0; id < description.pieces.size(); ++id) {
    const SentencePiece& piece = description.pieces[id];
    const bool user_defined = piece.type == PieceType::user_defined;
    // A user-defined symbol gets a score that no sum of others reaches.
    scores_.push_back(user_defined
                          ? double{static_cast<float>(piece.text.size()) * bounds.largest} - 0.1
                          : double{piece.score});
    if (user_defined || piece.type == PieceType::normal) {
      keys.push_back({piece.text, static_cast<int32_t>(id)});
    }
  }
  trie_ = std::make_unique<ByteTrie>(std::move(keys));
}

/// Calls visit(end, id, score) for each piece, or the unknown one, that may begin at `begin`, in
/// the library's order.
template <typename Visit>
void SentencePieceUnigram::each_piece(std::string_view word, size_t begin,
                                      const Visit& visit) const {
  const size_t single = begin + character_size(word.substr(begin));
  bool has_single = false;
  ByteTrie::Node node = ByteTrie::kRoot;
  for (size_t end = begin; end < word.size() && trie_->step(node, word[end]);) {
    ++end;
    const int32_t id = trie_->value(node);
    if (id == ByteTrie::kNone) continue;
    visit(end, id, scores_[static_cast<size_t>(id)]);
    has_single = has_single || end == single;
  }
  if (!has_single) visit(single, unknown_.id(), double{unknown_score_});
}

bool SentencePieceUnigram::encode(std::string_view word, float& sum, Scratch& scratch,
                                  std::vector<int32_t>& tokens) const {
  auto& ends = scratch.ends;  // [bytes + 1], of the pieces that end there
  ends.assign(word.size() + 1, {0, kNoBegin, 0});
  ends.front().sum = sum;
  for (size_t begin = 0; begin < word.size(); begin += character_size(word.substr(begin))) {
    const float before = ends[begin].sum;
    each_piece(word, begin, [&](size_t end, int32_t id, double score) {
      // The library adds the unknown piece's score in single precision, the others' in double.
      const double candidate =
          id == unknown_.id() ? double{unknown_score_ + before} : score + double{before};
      Scratch::End& target = ends[end];
      if (target.begin == kNoBegin || candidate > double{target.sum}) {
        target = {static_cast<float>(candidate), static_cast<uint32_t>(begin), id};
      }
    });
  }
  sum = ends.back().sum;
  auto& path = scratch.path;  // ends of the pieces, backwards
  path.clear();
  for (size_t end = word.size(); end > 0; end = ends[end].begin) {
    path.push_back(static_cast<uint32_t>(end));
  }
  bool known = true;
  for (size_t i = path.size(); i-- > 0;) {
    const Scratch::End& piece = ends[path[i]];
    if (piece.id != unknown_.id()) {
      tokens.push_back(piece.id);
    } else {
      unknown_.append(word.substr(piece.begin, path[i] - piece.begin), tokens);
      known = false;
    }
  }
  return known;
}

// Each way's sum in single precision differs from the exact one by at most its pieces times
// kRounding times the largest magnitude, which is the last one since sums only fall. The exactly
// best way wins where it is ahead of the second by what rounding can do to both.
float SentencePieceUnigram::limit(std::string_view word, Scratch& scratch) const {
  auto& ways = scratch.ways;  // [bytes + 1], to there
  ways.assign(word.size() + 1, {kNone, kNone, 0});
  ways.front() = {0, kNone, 0};
  for (size_t begin = 0; begin < word.size(); begin += character_size(word.substr(begin))) {
    const Scratch::Ways before = ways[begin];
    each_piece(word, begin, [&](size_t end, int32_t, double score) {
      Scratch::Ways& target = ways[end];
      for (const double candidate : {score + before.best, score + before.second}) {
        target.second = std::max(target.second, std::min(target.best, candidate));
        target.best = std::max(target.best, candidate);
      }
      target.pieces = std::max(target.pieces, before.pieces + 1);
    });
  }
  const Scratch::Ways& whole = ways.back();
  const double lead = whole.best - whole.second;  // infinite where there is one way only
  return static_cast<float>(lead / ((2.0 * whole.pieces + 2.0) * kRounding));
}

}  // namespace tessera
