#include "data/sentencepiece/long_stretch.h"

#include <algorithm>

#include "base/utf8.h"
#include "data/sentencepiece/utf8_character.h"

namespace tessera {
namespace {

constexpr size_t kStretch = size_t{32} << 10;  // bytes
constexpr size_t kLongestCompared = 1024;      // bytes of a piece; longer ones are slow to find
constexpr size_t kOffsets = 64;                // bytes in which the best offset is sought
constexpr size_t kMostBeginnings = 16;

/// Returns the end of the longest piece that begins at `begin` of the text, or `begin` if there is
/// none.
size_t reach(std::string_view text, size_t begin, const SentencePieceModel& model) {
  size_t reached = begin;
  size_t end = begin;
  while (end < text.size()) {
    end += character_size(text.substr(end));
    if (end - begin > model.longest_piece()) break;
    if (model.is_piece(text.substr(begin, end - begin))) reached = end;
  }
  return reached;
}

/// Returns an offset near the end of `stretch`, as the last element, and before it the begins of
/// all pieces that span it. A token of the text ends at one of these offsets. The last one is
/// chosen so that there are the fewest.
std::vector<size_t> possible_ends(std::string_view stretch, const SentencePieceModel& model) {
  const size_t longest = model.longest_piece();
  std::vector<size_t> begins;
  std::vector<size_t> reaches;
  size_t offset = character_begin(stretch, stretch.size() - 2 * longest - kOffsets);
  const size_t first = character_begin(stretch, stretch.size() - longest - kOffsets);
  const size_t last = character_begin(stretch, stretch.size() - longest);
  for (; offset <= last; offset += character_size(stretch.substr(offset))) {
    begins.push_back(offset);
    reaches.push_back(reach(stretch, offset, model));
  }
  std::vector<size_t> fewest;
  for (size_t i = 0; i < begins.size(); ++i) {
    if (begins[i] < first) continue;
    std::vector<size_t> ends;
    for (size_t j = 0; j < i; ++j) {
      if (reaches[j] > begins[i]) ends.push_back(begins[j]);
    }
    ends.push_back(begins[i]);
    if (fewest.empty() || ends.size() < fewest.size()) fewest = ends;
  }
  return fewest;
}

/// Returns the tokens that the beginnings of `stretch` up to `ends` all start with. They do not end
/// within a character.
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

}  // namespace

size_t longest_stretch(const SentencePieceModel& model) {
  return std::max(kStretch, 4 * model.longest_piece());
}

std::vector<StretchEncoder::Token> first_tokens(std::string_view stretch,
                                                const SentencePieceModel& model,
                                                StretchEncoder& encoder) {
  if (model.longest_piece() <= kLongestCompared) {
    const std::vector<size_t> ends = possible_ends(stretch, model);
    if (ends.size() == 1 || (model.beginnings_hold() && ends.size() <= kMostBeginnings)) {
      auto tokens = common_tokens(stretch, ends, encoder);
      if (!tokens.empty() && tokens.back().end >= stretch.size() / 2) return tokens;
    }
  }
  // The rest is longer than every piece, so two parts of an unknown word stay unknown.
  const size_t end = character_begin(stretch, stretch.size() - model.longest_piece() - 1);
  return encoder.encode_with_ends(stretch.substr(0, end));
}

}  // namespace tessera
