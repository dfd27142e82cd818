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

/// Encodes a text without added tokens that arrives bit by bit: cuts it by each pattern in turn and
/// gives the pieces to the model. What more text may change waits: with the usual patterns, the
/// last word or the last white space.
class SplitChain {
 public:
  /// All must outlive it; `patterns` are those of `steps`.
  SplitChain(const std::vector<SplitStep>& steps, const std::vector<SplitPattern>& patterns,
             const BpeModel& model);

  /// Whether any text has cuts (see add()) before its end.
  bool has_cuts() const { return has_cuts_; }

  /// Begins another text, at `place` of what it is a part of.
  void begin(int64_t place);
  /// Appends to `tokens` those that are certain, and to `cuts` all places, ascending, at which the
  /// text could begin and would give the same tokens from there on. Which these are depends on the
  /// text alone, not on how it arrives.
  void add(std::string_view text, std::vector<int32_t>& tokens, std::vector<TokenPlace>& cuts);
  /// The text ends, which is a cut.
  void finish(std::vector<int32_t>& tokens, std::vector<TokenPlace>& cuts);

 private:
  /// What one step cuts: the text, or a piece of the step before.
  struct Level {
    std::string text;     // what is not handed on, and before it what matches may look back at
    int64_t place = 0;    // of its begin
    size_t done = 0;      // before it all is handed on
    size_t wanted = 0;    // the length at which the text is worth another look
    bool opened = false;  // the next step has the begin of a piece that goes on at `done`
  };

  struct Output {
    std::vector<int32_t>& tokens;
    std::vector<TokenPlace>* cuts;  // null within a match: its pieces depend on all of it
  };

  /// The pieces that the step before gives to `step`; after the last step, to the model.
  void begin_piece(size_t step, int64_t place);
  void add_to_piece(size_t step, std::string_view text, const Output& output);
  void end_piece(size_t step, const Output& output);
  void whole_piece(size_t step, std::string_view piece, int64_t place, const Output& output);

  /// Hands on matches and what lies between them, as far as they are certain.
  void search(size_t step, bool ends, const Output& output);
  void give_match(size_t step, TextRange match, const Output& output);
  /// What lies before a match or the end, which begins at `end`.
  void give_rest(size_t step, size_t end, const Output& output);
  /// The begin of it, to `end`.
  void open_rest(size_t step, size_t end, const Output& output);

  std::vector<TokenPlace>* inner_cuts(const Output& output) const;

  const std::vector<SplitStep>& steps_;
  const std::vector<SplitPattern>& patterns_;
  const BpeModel& model_;
  const bool has_cuts_;
  std::vector<Level> levels_;  // of the steps
  OpenPiece piece_;            // after the last
  SplitPattern::Scratch split_;
  BpeModel::Scratch scratch_;
};

}  // namespace tessera
