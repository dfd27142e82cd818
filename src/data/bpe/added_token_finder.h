#pragma once

#include <bitset>
#include <cstdint>
#include <string_view>
#include <vector>

#include "data/bpe/bpe_description.h"
#include "data/bpe/split_pattern.h"

namespace tessera {

/// A part of a text: an added token, or text without added tokens.
struct AddedTokenPart {
  static constexpr int32_t kText = -1;

  TextRange range;  ///< in the text; a token's range is its content and the white space before it
  int32_t id = kText;
  bool operator==(const AddedTokenPart&) const = default;
};

/// A finder of added tokens in text, from left to right. At each offset the longest token wins. The
/// spelling of a control token stays text, so no document can contain a control token, and no other
/// token is found within that spelling. The `tokenizers` library does the same with
/// encode_special_tokens set, which is not its default.
class AddedTokenFinder {
 public:
  /// Of tokens with equal content, the first one is used.
  explicit AddedTokenFinder(const std::vector<AddedToken>& tokens);

  /// Returns whether no token can be found. find() need not be called then.
  bool finds_nothing() const { return finds_nothing_; }

  /// Returns the parts of `text`, valid UTF-8, in order. No text part is empty. White space that a
  /// token includes is in no text part. The worst-case time is proportional to the text's length
  /// times the longest token's length.
  std::vector<AddedTokenPart> find(std::string_view text, SplitPattern::Scratch& scratch) const;

  /// The state of a search in a text whose end is not known yet, in byte offsets of the text.
  struct State {
    size_t done = 0;            // all text before it is in a part or was included by a token
    size_t offset = 0;          // no token that is still to be found begins before it
    size_t blank_end = 0;       // if above `done`: the text from `done` to here is white space
    bool strips_right = false;  // the last token includes white space that may go on at `offset`
    std::vector<AddedTokenPart> parts;  // the parts found by the last call
    std::vector<TextRange> ignored;     // the tokens found by the last call that stay text
  };

  /// Continues the search in `text`. Searches to its end if the text `ends`, otherwise only as far
  /// as later text cannot change the parts. Consecutive text parts belong together. A caller that
  /// drops the start of the text must keep the character before `state.done`.
  void search(std::string_view text, bool ends, State& state, SplitPattern::Scratch& scratch) const;

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};

  /// A node of the trie of token contents: one more byte of a content. Siblings form a list.
  struct Node {
    char byte = 0;
    uint32_t token = kNone;  // the token that ends here
    uint32_t child = kNone;
    uint32_t sibling = kNone;
  };

  /// Adds a token, given by its index in tokens_, to the trie.
  void insert(std::string_view content, uint32_t token);
  uint32_t child(uint32_t node, char byte) const;
  /// Returns whether a token may start at `offset` of `text`, judged by two bytes, or by one if
  /// only one is known. It is a fast check, which most offsets do not pass.
  bool may_start(std::string_view text, size_t offset) const;
  /// Returns the longest token that starts at `begin`, or kNone. `may_be_longer` is set if more
  /// text may make it longer.
  uint32_t longest_token(std::string_view text, size_t begin, bool& may_be_longer) const;
  /// Returns whether a character of a word is beside `range`.
  bool touches_word(std::string_view text, TextRange range, SplitPattern::Scratch& scratch) const;
  /// Adds to the parts a token and the text before it.
  void add_token(const AddedToken& token, std::string_view text, TextRange content,
                 State& state) const;
  /// Adds to the parts the text before state.offset that no later token can include.
  void add_certain_text(std::string_view text, bool ends, State& state) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_{1};
  /// The first two bytes of each token. After a token of one byte, any second byte may follow.
  std::bitset<65536> token_starts_;
  std::bitset<256> first_bytes_;
  SplitPattern word_character_;
  bool finds_nothing_ = true;
  bool strips_left_ = false;  // true if some token includes white space before it
};

}  // namespace tessera
