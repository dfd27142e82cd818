#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/bpe/bpe_description.h"
#include "data/bpe/bpe_model.h"
#include "data/bpe/open_piece.h"
#include "data/bpe/split_pattern.h"

namespace tessera {

/// An encoder of a text that arrives in parts and contains no added tokens. It splits the text in
/// steps. A step divides its text into the matches of its pattern and the gaps between them. A
/// match is a piece, and so is a gap if the step keeps gaps. Each piece is a text for the next
/// step. The model encodes the pieces of the last step.
///
/// Text that has not arrived yet may make a match longer or undo it. A step therefore keeps such
/// text until more arrives: with the usual patterns, the last word or the last white space. A gap
/// is passed on to the next step as it arrives, before its end is known.
///
/// A cut is an offset at which the text could also begin: the tokens from there on would be the
/// same. Cuts depend only on the text, not on the parts in which it arrives.
class SplitChain {
 public:
  /// All arguments must outlive this object. `patterns` has one pattern per step.
  SplitChain(const std::vector<SplitStep>& steps, const std::vector<SplitPattern>& patterns,
             const BpeModel& model);

  /// Returns whether a text can have cuts before its end.
  bool has_cuts() const { return has_cuts_; }

  /// Begins another text, a part of a larger text that begins at `offset` of it.
  void begin(int64_t offset);
  /// Appends to `tokens` those that later text cannot change, and to `cuts` their cuts, ascending.
  void add(std::string_view text, std::vector<int32_t>& tokens, std::vector<TokenCut>& cuts);
  /// Ends the text. Its end is a cut.
  void finish(std::vector<int32_t>& tokens, std::vector<TokenCut>& cuts);

 private:
  /// The state of one step. Its text is the whole text or a piece of the step before.
  struct StepState {
    std::string text;     // the text that matches may look back at, then the text not passed on
    int64_t offset = 0;   // the offset of `text` in the whole text
    size_t done = 0;      // `text` before this offset is passed on
    size_t wanted = 0;    // the size of `text` at which to search it again
    bool in_gap = false;  // a gap continues at `done`; the next step has its beginning
  };

  struct Output {
    std::vector<int32_t>& tokens;
    std::vector<TokenCut>* cuts;  // null inside a match: its pieces depend on all of it
  };

  // These functions pass a piece to `step`, or to the model if `step` is after the last one.
  void begin_piece(size_t step, int64_t offset);
  void add_to_piece(size_t step, std::string_view text, const Output& output);
  void end_piece(size_t step, const Output& output);
  void whole_piece(size_t step, std::string_view piece, int64_t offset, const Output& output);

  /// Divides the text of a step as far as later text cannot change it, and passes the pieces on.
  /// Divides all of it if the text `ends`.
  void divide(size_t step, bool ends, const Output& output);
  /// Passes on a match, which is complete. There are no cuts inside it.
  void pass_match(size_t step, TextRange match, const Output& output);
  /// Passes on the gap from `done` to `end`, and ends it there.
  void pass_gap(size_t step, size_t end, const Output& output);
  /// Passes on a gap from `done` to `end`, which may continue.
  void pass_part_of_gap(size_t step, size_t end, const Output& output);

  std::vector<TokenCut>* cuts_in_piece(const Output& output) const;

  const std::vector<SplitStep>& steps_;
  const std::vector<SplitPattern>& patterns_;
  const BpeModel& model_;
  const bool has_cuts_;
  std::vector<StepState> states_;  // one per step
  OpenPiece piece_;                // after the last step
  SplitPattern::Scratch split_;
  BpeModel::Scratch scratch_;
};

}  // namespace tessera
