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

/// An encoder of a text without added tokens that arrives in parts. It cuts the text by each
/// pattern in turn and gives the pieces to the model. It holds back what more text may change: with
/// the usual patterns, the last word or the last white space.
class SplitChain {
 public:
  /// All arguments must outlive this object. `patterns` are those of `steps`.
  SplitChain(const std::vector<SplitStep>& steps, const std::vector<SplitPattern>& patterns,
             const BpeModel& model);

  /// Returns whether a text can have cuts (see add()) before its end.
  bool has_cuts() const { return has_cuts_; }

  /// Begins another text. `offset` is its offset in the text that it is part of.
  void begin(int64_t offset);
  /// Appends to `tokens` those that are certain. Appends to `cuts`, in ascending order, all offsets
  /// at which the text could begin and would give the same tokens from there on. They depend only
  /// on the text, not on the parts in which it arrives.
  void add(std::string_view text, std::vector<int32_t>& tokens, std::vector<TokenCut>& cuts);
  /// Ends the text. Its end is a cut.
  void finish(std::vector<int32_t>& tokens, std::vector<TokenCut>& cuts);

 private:
  /// The state of one step and the text that it cuts: the whole text, or a piece of the step
  /// before.
  struct Level {
    std::string text;    // the text not handed on yet, after the text that matches may look back at
    int64_t offset = 0;  // the offset of `text` in the whole text
    size_t done = 0;     // all text before it is handed on
    size_t wanted = 0;   // the size of `text` at which to search again
    bool opened = false;  // the next step has the begin of a piece that continues at `done`
  };

  struct Output {
    std::vector<int32_t>& tokens;
    std::vector<TokenCut>* cuts;  // null inside a match: its pieces depend on all of it
  };

  /// Hand a piece from the step before to `step`, or to the model after the last step.
  void begin_piece(size_t step, int64_t offset);
  void add_to_piece(size_t step, std::string_view text, const Output& output);
  void end_piece(size_t step, const Output& output);
  void whole_piece(size_t step, std::string_view piece, int64_t offset, const Output& output);

  /// Hands on the matches and the text between them, as far as they are certain.
  void search(size_t step, bool ends, const Output& output);
  void give_match(size_t step, TextRange match, const Output& output);
  /// Hands on the rest of the text up to `end`, the begin of a match or the end of the text.
  void give_rest(size_t step, size_t end, const Output& output);
  /// Hands on the begin of a rest, up to `end`, when its own end is not known yet.
  void open_rest(size_t step, size_t end, const Output& output);

  std::vector<TokenCut>* inner_cuts(const Output& output) const;

  const std::vector<SplitStep>& steps_;
  const std::vector<SplitPattern>& patterns_;
  const BpeModel& model_;
  const bool has_cuts_;
  std::vector<Level> levels_;  // one per step
  OpenPiece piece_;            // after the last step
  SplitPattern::Scratch split_;
  BpeModel::Scratch scratch_;
};

}  // namespace tessera
