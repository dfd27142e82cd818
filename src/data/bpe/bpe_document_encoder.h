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
#include "data/offset_map.h"

namespace tessera {

/// An encoder that takes a document through the stages as it arrives. Each stage holds back the
/// text whose result later text may change:
///   - the search for added tokens: the begin of one, and white space that one may include,
///   - normalisation: the characters after the last one that nothing before it can change,
///   - the splits and the merges: see SplitChain and OpenPiece.
/// An offset is a boundary if all stages could restart there: a piece ends there, outside any match
/// of an earlier split and any token that stays text, and no text that got a space in front begins
/// there. This depends only on the text around the offset, and every boundary is reported.
class BpeDocumentEncoder : public DocumentEncoder {
 public:
  explicit BpeDocumentEncoder(const BpeStages& stages);

  void begin(bool starts_document) override;
  void add(std::string_view piece, std::vector<int32_t>& ids,
           std::vector<Boundary>& boundaries) override;
  void finish(std::vector<int32_t>& ids, std::vector<Boundary>& boundaries) override;

 private:
  /// The state of a search for added tokens in a text that arrives in parts.
  struct Finding {
    std::string text;
    int64_t offset = 0;  // the offset of `text` in the whole text
    AddedTokenFinder::Search search;
    std::deque<TextRange> passed_by;  // offsets of tokens that stay text; no boundary is in them

    void begin(int64_t at);
    /// Drops the text that has been handed on, except for the character that a token may look back
    /// at.
    void shorten();
    bool passes_by(int64_t at);
  };

  /// Each of these functions adds text to a stage, or ends the stage's text.
  void add_raw(std::string_view text, bool ends);
  void add_part(std::string_view text, int64_t offset);
  void end_part();
  void normalize(size_t end);
  void add_normalized(std::string_view text, int64_t offset, bool ends);
  void add_plain(std::string_view text, int64_t offset);
  void end_plain();
  void give_token(int32_t id);
  void find(const AddedTokenFinder& finder, Finding& finding, bool ends);
  void give_boundaries(bool text_ends);
  void begin_call(std::vector<int32_t>& ids, std::vector<Boundary>& boundaries);
  void end_call();

  const BpeStages& stages_;
  SplitPattern::Scratch split_;
  Finding raw_;
  std::string part_;         // the text of a part between tokens that is not normalised yet
  int64_t part_offset_ = 0;  // the offset of `part_` in the whole text
  size_t part_seen_ = 0;     // no offset at which `part_` can be cut is before it
  std::string normal_form_;
  int64_t normal_offset_ = 0;  // bytes of normal form handed on so far
  OffsetMap raw_offsets_;      // maps the normal form to the raw text
  Finding normalized_;
  bool in_text_ = false;    // inside a text without added tokens
  int64_t text_begin_ = 0;  // the offset of that text, in the normal form
  bool space_due_ = false;  // the next such text gets a space in front
  SplitChain chain_;
  std::vector<TokenCut> cuts_;  // during a call, counts of tokens in ids_; else in all calls
  int64_t last_boundary_ = 0;   // the offset of the last reported boundary
  Boundary given_;              // the bytes added so far, and the number of ids of earlier calls

  // Valid during a call:
  std::vector<int32_t>* ids_ = nullptr;
  std::vector<Boundary>* boundaries_ = nullptr;
  int64_t ids_before_ = 0;  // the size of `ids_` minus the number of ids given so far
};

}  // namespace tessera
