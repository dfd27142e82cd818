#pragma once

#include <bitset>
#include <cstdint>
#include <string_view>
#include <vector>

#include "data/bpe/added_token.h"
#include "data/bpe/split_pattern.h"

namespace tessera {

/// A part of a text: an added token, or text without one.
struct AddedTokenPart {
  static constexpr int32_t kText = -1;

  TextRange range;  ///< of the text; of a token, its content and the white space before it
  int32_t id = kText;

  bool operator==(const AddedTokenPart&) const = default;
};

/// Finds added tokens in text: from left to right, at each place the longest. What control tokens
/// spell stays text, so that no document can hold a control token, and no other token is found
/// within it: the `tokenizers` library does the same with encode_special_tokens set, not by
/// default.
class AddedTokenFinder {
 public:
  /// Of tokens with equal content the first counts.
  explicit AddedTokenFinder(const std::vector<AddedToken>& tokens);

  /// Whether no text holds a token; find() then need not be called.
  bool finds_nothing() const { return finds_nothing_; }

  /// The parts of `text`, valid UTF-8, in order; no text part is empty. White space that a token
  /// takes along is in no text part. Takes operations in proportion to the text's length times the
  /// longest token's, at worst.
  std::vector<AddedTokenPart> find(std::string_view text, SplitPattern::Scratch& scratch) const;

  /// How far the search in a text has come whose end is not known yet. Places are bytes of it.
  struct Search {
    size_t done = 0;      // before it all lies in a part, or was taken along by a token
    size_t place = 0;     // no token that is not found yet begins before it
    size_t blank = 0;     // if it is not below `done`, all from there to it is white space
    bool taking = false;  // the white space at `place`, for the token before it
    std::vector<AddedTokenPart> parts;  // found by this call
    std::vector<TextRange> passed_by;   // by this call: tokens that stay text
  };

  /// Goes on with the search in `text`, and to its end if it `ends`; otherwise as far as what
  /// follows cannot change the parts. Text parts that follow each other belong together. Whoever
  /// shortens the text keeps the character before `search.done`.
  void search(std::string_view text, bool ends, Search& search,
              SplitPattern::Scratch& scratch) const;

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};

  /// One more byte of some token's content; siblings form a list.
  struct Node {
    char byte = 0;
    uint32_t token = kNone;  // that ends here
    uint32_t child = kNone;
    uint32_t sibling = kNone;
  };

  void insert(std::string_view content, uint32_t token);
  uint32_t child(uint32_t node, char byte) const;
  /// Whether a token may start at a place of `text`, by two bytes, or one where no more are known.
  bool may_start(std::string_view text, size_t place) const;
  /// The longest token that starts at `begin`, or kNone. `open`: more text may make it longer.
  uint32_t longest(std::string_view text, size_t begin, bool& open) const;
  bool touches_word(std::string_view text, TextRange range, SplitPattern::Scratch& scratch) const;
  void take(const AddedToken& token, std::string_view text, TextRange content,
            Search& search) const;
  /// Of the text before search.place, what no token can take along.
  void settle_text(std::string_view text, bool ends, Search& search) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_{1};
  std::bitset<65536> starts_;  // the first two bytes of tokens; any second byte where they have one
  std::bitset<256> first_bytes_;
  SplitPattern word_;
  bool finds_nothing_ = true;
  bool strips_left_ = false;  // some token
};

}  // namespace tessera
