#include "data/bpe/added_token_finder.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/utf8.h"

// search() walks over the text: may_start() skips most offsets, longest_token() walks the trie of
// contents, and add_token() stores what is found, with the white space that it includes.

namespace tessera {
namespace {

/// \w of Unicode Technical Standard 18: letters, marks, digits, underscores, letters in circles and
/// squares, joiners.
constexpr const char* kWordCharacter =
    "[\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\u24B6-\u24E9\U0001F130-\U0001F149\U0001F150-\U0001F169"
    "\U0001F170-\U0001F189\u200C\u200D]";

/// The characters with Unicode's White_Space property, in UTF-8.
constexpr std::array<std::string_view, 25> kWhiteSpace{
    " ",      "\t",     "\n",     "\v",     "\f",     "\r",     "\u0085", "\u00A0", "\u1680",
    "\u2000", "\u2001", "\u2002", "\u2003", "\u2004", "\u2005", "\u2006", "\u2007", "\u2008",
    "\u2009", "\u200A", "\u2028", "\u2029", "\u202F", "\u205F", "\u3000"};

/// Returns the start of the white space that ends at `end`, but at least `begin`.
size_t white_space_before(std::string_view text, size_t begin, size_t end) {
  for (;;) {
    const std::string_view before = text.substr(begin, end - begin);
    const auto found = std::ranges::find_if(
        kWhiteSpace, [&](std::string_view space) { return before.ends_with(space); });
    if (found == kWhiteSpace.end()) return end;
    end -= found->size();
  }
}

/// Returns the end of the white space that begins at `begin`.
size_t white_space_after(std::string_view text, size_t begin) {
  for (;;) {
    const auto found = std::ranges::find_if(
        kWhiteSpace, [&](std::string_view space) { return text.substr(begin).starts_with(space); });
    if (found == kWhiteSpace.end()) return begin;
    begin += found->size();
  }
}

size_t first_two_bytes(char first, char second) {
  return static_cast<size_t>(static_cast<unsigned char>(first)) << 8 |
         static_cast<unsigned char>(second);
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(const std::vector<AddedToken>& tokens)
    : tokens_(tokens), word_character_(kWordCharacter, "added tokens") {
  for (uint32_t i = 0; i < tokens_.size(); ++i) {
    insert(tokens_[i].content, i);
    if (!tokens_[i].special) finds_nothing_ = false;
    if (!tokens_[i].special && tokens_[i].strip_left) strips_left_ = true;
  }
}

void AddedTokenFinder::insert(std::string_view content, uint32_t token) {
  first_bytes_.set(static_cast<unsigned char>(content[0]));
  if (content.size() > 1) {
    token_starts_.set(first_two_bytes(content[0], content[1]));
  } else {
    for (int second = 0; second < 256; ++second) {
      token_starts_.set(first_two_bytes(content[0], static_cast<char>(second)));
    }
  }
  uint32_t node = 0;
  for (const char byte : content) {
    uint32_t next = child(node, byte);
    if (next == kNone) {
      next = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back({.byte = byte, .sibling = nodes_[node].child});
      nodes_[node].child = next;
    }
    node = next;
  }
  if (nodes_[node].token == kNone) nodes_[node].token = token;
}

uint32_t AddedTokenFinder::child(uint32_t node, char byte) const {
  uint32_t next = nodes_[node].child;
  while (next != kNone && nodes_[next].byte != byte) next = nodes_[next].sibling;
  return next;
}

bool AddedTokenFinder::may_start(std::string_view text, size_t offset) const {
  return offset + 1 < text.size() ? token_starts_[first_two_bytes(text[offset], text[offset + 1])]
                                  : first_bytes_[static_cast<unsigned char>(text[offset])];
}

uint32_t AddedTokenFinder::longest_token(std::string_view text, size_t begin,
                                         bool& may_be_longer) const {
  uint32_t found = kNone;
  uint32_t node = 0;
  for (size_t i = begin; i < text.size(); ++i) {
    node = child(node, text[i]);
    if (node == kNone) break;
    if (nodes_[node].token != kNone) found = nodes_[node].token;
  }
  may_be_longer = node != kNone && nodes_[node].child != kNone;
  return found;
}

bool AddedTokenFinder::touches_word(std::string_view text, TextRange range,
                                    SplitPattern::Scratch& scratch) const {
  if (range.begin > 0) {
    const size_t before = character_begin(text, range.begin - 1);
    if (word_character_.find(text.substr(before, range.begin - before), 0, scratch)) return true;
  }
  if (range.end == text.size()) return false;
  const size_t after = next_character(text, range.end + 1);
  return word_character_.find(text.substr(range.end, after - range.end), 0, scratch).has_value();
}

void AddedTokenFinder::add_token(const AddedToken& token, std::string_view text, TextRange content,
                                 State& state) const {
  TextRange range = content;
  if (token.strip_left) range.begin = white_space_before(text, state.done, content.begin);
  if (state.done < range.begin) state.parts.push_back({{state.done, range.begin}});
  state.parts.push_back({range, token.id});
  state.done = state.offset = content.end;
  state.strips_right = token.strip_right;
}

void AddedTokenFinder::add_certain_text(std::string_view text, bool ends, State& state) const {
  size_t certain = state.offset;
  if (strips_left_ && !ends) {
    // White space of any length is examined only once.
    const size_t known = std::max(state.blank_end, state.done);
    const size_t begin = white_space_before(text, known, state.offset);
    certain = begin > known ? begin : state.done;
    state.blank_end = state.offset;
  }
  if (state.done < certain) state.parts.push_back({{state.done, certain}});
  state.done = std::max(state.done, certain);
}

void AddedTokenFinder::search(std::string_view text, bool ends, State& state,
                              SplitPattern::Scratch& scratch) const {
  state.parts.clear();
  state.ignored.clear();
  const auto strip_white_space = [&](size_t end) {
    state.done = white_space_after(text.substr(0, end), state.done);
    state.strips_right = state.done == end;
  };
  while (state.offset < text.size()) {
    if (!state.strips_right) {
      while (state.offset < text.size() && !may_start(text, state.offset)) ++state.offset;
      if (state.offset == text.size()) break;
    }
    bool may_be_longer = false;
    const uint32_t found = longest_token(text, state.offset, may_be_longer);
    if (may_be_longer && !ends) break;
    if (found == kNone) {
      const size_t next = next_character(text, state.offset + 1);
      if (state.strips_right) strip_white_space(next);
      state.offset = next;
      continue;
    }
    const AddedToken& token = tokens_[found];
    const TextRange content{state.offset, state.offset + token.content.size()};
    if (token.single_word && content.end == text.size() && !ends) break;
    // A token of white space that itself strips the white space before it is part of the white
    // space that the last token includes.
    const bool is_stripped =
        state.strips_right && token.strip_left &&
        white_space_after(text.substr(0, content.end), content.begin) == content.end;
    if (is_stripped) {
      strip_white_space(content.end);
      state.offset = content.end;
      continue;
    }
    if (token.special || (token.single_word && touches_word(text, content, scratch))) {
      state.ignored.push_back(content);
      if (state.strips_right) strip_white_space(content.end);
      state.offset = content.end;
    } else {
      add_token(token, text, content, state);
    }
  }
  add_certain_text(text, ends, state);
}

std::vector<AddedTokenPart> AddedTokenFinder::find(std::string_view text,
                                                   SplitPattern::Scratch& scratch) const {
  State whole;
  search(text, /*ends=*/true, whole, scratch);
  return std::move(whole.parts);
}

}  // namespace tessera
