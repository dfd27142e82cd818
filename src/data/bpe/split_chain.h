#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"
#include "data/bpe/bpe_description.h"
#include "data/bpe/bpe_model.h"
#include "data/bpe/open_piece.h"
#include "data/bpe/split_pattern.h"

// divide() cuts the text of a step into matches and gaps. A match is passed to the next step as a
// whole, a gap in parts as it arrives. After the last step comes the model.

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
             const BpeModel& model)
      : steps_(steps),
        patterns_(patterns),
        model_(model),
        has_cuts_(std::ranges::all_of(
            patterns, [](const auto& pattern) { return pattern.look_behind() == 0; })),
        states_(steps.size()),
        piece_(model) {}

  /// Returns whether a text can have cuts before its end: whether no pattern looks back. A pattern
  /// that looks back depends on earlier text.
  bool has_cuts() const { return has_cuts_; }

  /// Begins another text, a part of a larger text that begins at `offset` of it.
  void begin(int64_t offset) { begin_piece(0, offset); }

  /// Appends to `tokens` those that later text cannot change, and to `cuts` their cuts, ascending.
  void add(std::string_view text, std::vector<int32_t>& tokens, std::vector<TokenCut>& cuts) {
    add_to_piece(0, text, {tokens, has_cuts_ ? &cuts : nullptr});
  }

  /// Ends the text. Its end is a cut.
  void finish(std::vector<int32_t>& tokens, std::vector<TokenCut>& cuts) {
    end_piece(0, {tokens, has_cuts_ ? &cuts : nullptr});
  }

 private:
  /// A step searches the text that it holds back again whenever more arrives, up to this size.
  /// Longer text is searched again only when it has doubled, so a long match does not need
  /// quadratic time.
  static constexpr size_t kOftenSearched = size_t{32} << 10;

  static void add_cut(std::vector<TokenCut>* cuts, int64_t offset,
                      const std::vector<int32_t>& tokens) {
    if (cuts == nullptr || (!cuts->empty() && cuts->back().offset == offset)) return;
    cuts->push_back({offset, static_cast<int64_t>(tokens.size())});
  }

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
  void begin_piece(size_t step, int64_t offset) {
    if (step == steps_.size()) {
      piece_.begin(offset);
      return;
    }
    StepState& state = states_[step];
    state.text.clear();
    state.offset = offset;
    state.done = state.wanted = 0;
    state.in_gap = false;
  }

  void add_to_piece(size_t step, std::string_view text, const Output& output) {
    if (step == steps_.size()) {
      piece_.add(text, output.tokens, cuts_in_piece(output));
      return;
    }
    StepState& state = states_[step];
    state.text += text;
    if (state.text.size() >= state.wanted) divide(step, /*ends=*/false, output);
  }

  void end_piece(size_t step, const Output& output) {
    if (step == steps_.size()) {
      piece_.finish(output.tokens, cuts_in_piece(output));
    } else {
      divide(step, /*ends=*/true, output);
    }
  }

  void pass_whole_piece(size_t step, std::string_view piece, int64_t offset, const Output& output) {
    const bool at_once = piece.size() <= OpenPiece::kWindow && cuts_in_piece(output) == nullptr;
    if (step == steps_.size() && at_once) {
      model_.encode(piece, model_scratch_, output.tokens);
      return;
    }
    begin_piece(step, offset);
    if (step < steps_.size()) {
      states_[step].text = piece;
    } else {
      for (size_t i = 0; i < piece.size(); i += OpenPiece::kWindow) {
        piece_.add(piece.substr(i, OpenPiece::kWindow), output.tokens, cuts_in_piece(output));
      }
    }
    end_piece(step, output);
  }

  /// Divides the text of a step as far as later text cannot change it, and passes the pieces on.
  /// Divides all of it if the text `ends`.
  void divide(size_t step, bool ends, const Output& output) {
    StepState& state = states_[step];
    const SplitPattern& pattern = patterns_[step];
    while (state.done < state.text.size()) {
      const auto found = ends ? pattern.find(state.text, state.done, split_scratch_)
                              : pattern.find_open(state.text, state.done, split_scratch_);
      if (found && found->end != SplitPattern::kOpen) {
        pass_gap(step, found->begin, output);
        pass_match(step, *found, output);
        continue;
      }
      if (!ends) pass_part_of_gap(step, found ? found->begin : state.text.size(), output);
      break;
    }
    if (ends) {
      pass_gap(step, state.text.size(), output);
      return;
    }
    const size_t dropped =
        character_begin(state.text, state.done - std::min(state.done, pattern.look_behind()));
    state.text.erase(0, dropped);
    state.offset += static_cast<int64_t>(dropped);
    state.done -= dropped;
    const size_t held = state.text.size() - state.done;
    state.wanted = held > kOftenSearched ? state.text.size() + held : 0;
  }

  /// Passes on a match, which is complete. There are no cuts inside it.
  void pass_match(size_t step, TextRange match, const Output& output) {
    StepState& state = states_[step];
    const std::string_view piece =
        std::string_view(state.text).substr(match.begin, match.end - match.begin);
    pass_whole_piece(step + 1, piece, state.offset + static_cast<int64_t>(match.begin),
                     {output.tokens, nullptr});
    state.done = match.end;
    add_cut(output.cuts, state.offset + static_cast<int64_t>(match.end), output.tokens);
  }

  /// Passes on the gap from `done` to `end`, and ends it there.
  void pass_gap(size_t step, size_t end, const Output& output) {
    StepState& state = states_[step];
    const std::string_view gap = std::string_view(state.text).substr(state.done, end - state.done);
    const int64_t offset = state.offset + static_cast<int64_t>(state.done);
    state.done = end;
    if (!steps_[step].keeps_gaps || (gap.empty() && !state.in_gap)) return;
    if (state.in_gap) {
      add_to_piece(step + 1, gap, output);
      end_piece(step + 1, output);
      state.in_gap = false;
    } else {
      pass_whole_piece(step + 1, gap, offset, output);
    }
    add_cut(output.cuts, state.offset + static_cast<int64_t>(end), output.tokens);
  }

  /// Passes on a gap from `done` to `end`, which may continue.
  void pass_part_of_gap(size_t step, size_t end, const Output& output) {
    StepState& state = states_[step];
    const std::string_view gap = std::string_view(state.text).substr(state.done, end - state.done);
    if (steps_[step].keeps_gaps && !gap.empty()) {
      if (!state.in_gap) begin_piece(step + 1, state.offset + static_cast<int64_t>(state.done));
      state.in_gap = true;
      add_to_piece(step + 1, gap, output);
    }
    state.done = end;
  }

  /// Returns the list for the cuts inside a piece of the last step, or null. Outside a match each
  /// token's end is a cut (see OpenPiece), unless the piece could be one token as a whole.
  std::vector<TokenCut>* cuts_in_piece(const Output& output) const {
    return model_.ignores_merges() ? nullptr : output.cuts;
  }

  const std::vector<SplitStep>& steps_;
  const std::vector<SplitPattern>& patterns_;
  const BpeModel& model_;
  const bool has_cuts_;
  std::vector<StepState> states_;  // one per step
  OpenPiece piece_;                // after the last step
  SplitPattern::Scratch split_scratch_;
  BpeModel::Scratch model_scratch_;
};

}  // namespace tessera
