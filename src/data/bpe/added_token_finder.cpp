#include "data/bpe/added_token_finder.h"

#include <algorithm>
#include <array>

#include "data/corpus/utf8.h"

namespace tessera {
namespace {

/// \w of Unicode Technical Standard 18: letters, marks, digits, underscores, letters in circles and
/// squares, joiners.
constexpr const char* kWord =
    "[\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\u24B6-\u24E9\U0001F130-\U0001F149\U0001F150-\U0001F169"
    "\U0001F170-\U0001F189\u200C\u200D]";

/// The characters that have Unicode's White_Space property, in UTF-8.
constexpr std::array<std::string_view, 25> kWhiteSpace{
    " ",      "\t",     "\n",     "\v",     "\f",     "\r",     "\u0085", "\u00A0", "\u1680",
    "\u2000", "\u2001", "\u2002", "\u2003", "\u2004", "\u2005", "\u2006", "\u2007", "\u2008",
    "\u2009", "\u200A", "\u2028", "\u2029", "\u202F", "\u205F", "\u3000"};

size_t white_space_before(std::string_view text, size_t end) {
  for (;;) {
    const auto found = std::ranges::find_if(
        kWhiteSpace, [&](std::string_view space) { return text.substr(0, end).ends_with(space); });
    if (found == kWhiteSpace.end()) return end;
    end -= found->size();
  }
}

size_t white_space_after(std::string_view text, size_t begin) {
  for (;;) {
    const auto found = std::ranges::find_if(
        kWhiteSpace, [&](std::string_view space) { return text.substr(begin).starts_with(space); });
    if (found == kWhiteSpace.end()) return begin;
    begin += found->size();
  }
}

/// Where the character that ends at `end` begins.
size_t previous_character(std::string_view text, size_t end) {
  do --end;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U);
  return end;
}

size_t first_two(char first, char second) {
  return static_cast<size_t>(static_cast<unsigned char>(first)) << 8 |
         static_cast<unsigned char>(second);
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(const std::vector<AddedToken>& tokens)
    : tokens_(tokens), word_(kWord, "added tokens") {
  for (uint32_t i = 0; i < tokens_.size(); ++i) {
    insert(tokens_[i].content, i);
    if (!tokens_[i].special) finds_nothing_ = false;
  }
}

void AddedTokenFinder::insert(std::string_view content, uint32_t token) {
  if (content.size() > 1) {
    starts_.set(first_two(content[0], content[1]));
  } else {
    for (int second = 0; second < 256; ++second) {
      starts_.set(first_two(content[0], static_cast<char>(second)));
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

uint32_t AddedTokenFinder::longest(std::string_view text, size_t begin) const {
  uint32_t found = kNone;
  uint32_t node = 0;
  for (size_t i = begin; i < text.size(); ++i) {
    node = child(node, text[i]);
    if (node == kNone) break;
    if (nodes_[node].token != kNone) found = nodes_[node].token;
  }
  return found;
}

bool AddedTokenFinder::touches_word(std::string_view text, TextRange range,
                                    SplitPattern::Scratch& scratch) const {
  if (range.begin > 0) {
    const size_t before = previous_character(text, range.begin);
    if (word_.find(text.substr(before, range.begin - before), 0, scratch)) return true;
  }
  if (range.end == text.size()) return false;
  const size_t after = next_character(text, range.end + 1);
  return word_.find(text.substr(range.end, after - range.end), 0, scratch).has_value();
}

std::vector<AddedTokenPart> AddedTokenFinder::find(std::string_view text,
                                                   SplitPattern::Scratch& scratch) const {
  std::vector<AddedTokenPart> parts;
  size_t done = 0;  // bytes that lie in a part
  for (size_t i = 0; i < text.size(); ++i) {
    const char second = i + 1 < text.size() ? text[i + 1] : '\0';
    if (!starts_[first_two(text[i], second)]) continue;
    const uint32_t found = longest(text, i);
    if (found == kNone) continue;
    const AddedToken& token = tokens_[found];
    TextRange range{i, i + token.content.size()};
    i = range.end - 1;
    if (token.special) continue;
    if (token.single_word && touches_word(text, range, scratch)) continue;
    if (token.strip_left) {
      range.begin = std::max(white_space_before(text, range.begin), done);
    }
    if (token.strip_right) range.end = white_space_after(text, range.end);
    if (done < range.begin) parts.push_back({{done, range.begin}});
    parts.push_back({range, token.id});
    done = range.end;
  }
  if (done < text.size()) parts.push_back({{done, text.size()}});
  return parts;
}

}  // namespace tessera
