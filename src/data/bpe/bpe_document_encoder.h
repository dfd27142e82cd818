#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "data/bpe/added_token_finder.h"
#include "data/bpe/bpe_stages.h"
#include "data/bpe/split_chain.h"
#include "data/bpe/split_pattern.h"
#include "data/document_encoder.h"
#include "data/place_map.h"

namespace tessera {

/// Takes a document through the stages as it arrives; each keeps what more text may change:
///   - finding added tokens, the begin of one and the white space that one may take along,
///   - normalisation, the characters after the last that nothing before it can change,
///   - the splits and the merges, see SplitChain and OpenPiece.
/// A place is a boundary where all stages could begin anew: where a piece ends, in no match of an
/// earlier split, in no token that stays text, and not at the begin of a text that a space was put
/// before. Which places these are depends on the text around them alone, and all are given.
class BpeDocumentEncoder : public DocumentEncoder {
 public:
  explicit BpeDocumentEncoder(const BpeStages& stages);

  void begin(bool starts_document) override;
  void add(std::string_view piece, std::vector<int32_t>& ids,
           std::vector<Boundary>& boundaries) override;
  void finish(std::vector<int32_t>& ids, std::vector<Boundary>& boundaries) override;

 private:
  /// The search for added tokens in a text that arrives bit by bit.
  struct Finding {
    std::string text;
    int64_t place = 0;  // of its begin
    AddedTokenFinder::Search search;
    std::deque<TextRange> passed_by;  // places of tokens that stay text; no boundary lies there

    void begin(int64_t at);
    /// Drops what has been handed on, but for the character that a token may look back at.
    void shorten();
    bool passes_by(int64_t at);
  };

  /// Each adds text to a stage, or ends the stage's text.
  void add_raw(std::string_view text, bool ends);
  void add_part(std::string_view text, int64_t place);
  void end_part();
  void normalize(size_t end);
  void add_normalized(std::string_view text, int64_t place, bool ends);
  void add_plain(std::string_view text, int64_t place);
  void end_plain();
  void give_token(int32_t id);
  void find(const AddedTokenFinder& finder, Finding& finding, bool ends);
  void give_boundaries(bool text_ends);
  void begin_call(std::vector<int32_t>& ids, std::vector<Boundary>& boundaries);
  void end_call();

  const BpeStages& stages_;
  SplitPattern::Scratch split_;
  Finding raw_;
  std::string part_;        // of a part between tokens, what is not normalised
  int64_t part_place_ = 0;  // of its begin
  size_t part_seen_ = 0;    // no place to cut it lies before
  std::string normal_form_;
  int64_t normal_place_ = 0;  // bytes of normal form so far
  PlaceMap raw_places_;       // of the normal form
  Finding normalized_;
  bool in_text_ = false;    // without added tokens
  int64_t text_begin_ = 0;  // of that text, in the normal form
  bool space_due_ = false;  // before the next such text
  SplitChain chain_;
  std::vector<TokenPlace> cuts_;  // tokens of ids_ in a call, of all calls between two
  int64_t last_boundary_ = 0;     // given so far
  Boundary given_;                // all text that was added, and the ids of earlier calls

  // Of the call that is being made.
  std::vector<int32_t>* ids_ = nullptr;
  std::vector<Boundary>* boundaries_ = nullptr;
  int64_t ids_before_ = 0;  // how many more ids stand in `ids_` than have been given
};

}  // namespace tessera
