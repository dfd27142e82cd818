#include "data/bpe/split_chain.h"

#include <algorithm>

#include "base/utf8.h"

namespace tessera {
namespace {

/// The size of held text up to which an open match is tried again whenever more text arrives.
/// Beyond it, a match is tried again only when the held text has doubled, so a long match does not
/// need quadratic time.
constexpr size_t kOftenTried = size_t{32} << 10;

void add_cut(std::vector<TokenCut>* cuts, int64_t offset, const std::vector<int32_t>& tokens) {
  if (cuts == nullptr || (!cuts->empty() && cuts->back().offset == offset)) return;
  cuts->push_back({offset, static_cast<int64_t>(tokens.size())});
}

/// Returns whether no pattern looks back. A pattern that looks back depends on earlier text.
bool none_looks_back(const std::vector<SplitPattern>& patterns) {
  return std::ranges::all_of(patterns, [](const auto& one) { return one.look_behind() == 0; });
}

}  // namespace

SplitChain::SplitChain(const std::vector<SplitStep>& steps,
                       const std::vector<SplitPattern>& patterns, const BpeModel& model)
    : steps_(steps),
      patterns_(patterns),
      model_(model),
      has_cuts_(none_looks_back(patterns)),
      levels_(steps.size()),
      piece_(model) {}

void SplitChain::begin(int64_t offset) { begin_piece(0, offset); }

void SplitChain::add(std::string_view text, std::vector<int32_t>& tokens,
                     std::vector<TokenCut>& cuts) {
  add_to_piece(0, text, {tokens, has_cuts_ ? &cuts : nullptr});
}

void SplitChain::finish(std::vector<int32_t>& tokens, std::vector<TokenCut>& cuts) {
  end_piece(0, {tokens, has_cuts_ ? &cuts : nullptr});
}

/// Returns the list that gets the cuts inside a piece that no match bounds, or null. Each token's
/// end is a cut (see OpenPiece), unless the piece could be one token as a whole.
std::vector<TokenCut>* SplitChain::inner_cuts(const Output& output) const {
  return model_.ignores_merges() ? nullptr : output.cuts;
}

void SplitChain::begin_piece(size_t step, int64_t offset) {
  if (step == steps_.size()) {
    piece_.begin(offset);
    return;
  }
  Level& level = levels_[step];
  level.text.clear();
  level.offset = offset;
  level.done = level.wanted = 0;
  level.opened = false;
}

void SplitChain::add_to_piece(size_t step, std::string_view text, const Output& output) {
  if (step == steps_.size()) {
    piece_.add(text, output.tokens, inner_cuts(output));
    return;
  }
  Level& level = levels_[step];
  level.text += text;
  if (level.text.size() >= level.wanted) search(step, /*ends=*/false, output);
}

void SplitChain::end_piece(size_t step, const Output& output) {
  if (step == steps_.size()) {
    piece_.finish(output.tokens, inner_cuts(output));
  } else {
    search(step, /*ends=*/true, output);
  }
}

void SplitChain::whole_piece(size_t step, std::string_view piece, int64_t offset,
                             const Output& output) {
  const bool short_piece = piece.size() <= OpenPiece::kWindow && inner_cuts(output) == nullptr;
  if (step == steps_.size() && short_piece) {
    model_.encode(piece, scratch_, output.tokens);
    return;
  }
  begin_piece(step, offset);
  if (step < steps_.size()) {
    levels_[step].text = piece;
  } else {
    for (size_t i = 0; i < piece.size(); i += OpenPiece::kWindow) {
      piece_.add(piece.substr(i, OpenPiece::kWindow), output.tokens, inner_cuts(output));
    }
  }
  end_piece(step, output);
}

void SplitChain::search(size_t step, bool ends, const Output& output) {
  Level& level = levels_[step];
  const SplitPattern& pattern = patterns_[step];
  while (level.done < level.text.size()) {
    const auto found = ends ? pattern.find(level.text, level.done, split_)
                            : pattern.find_open(level.text, level.done, split_);
    if (found && found->end != SplitPattern::kOpen) {
      give_rest(step, found->begin, output);
      give_match(step, *found, output);
      continue;
    }
    if (!ends) open_rest(step, found ? found->begin : level.text.size(), output);
    break;
  }
  if (ends) {
    give_rest(step, level.text.size(), output);
    return;
  }
  const size_t kept =
      character_begin(level.text, level.done - std::min(level.done, pattern.look_behind()));
  level.text.erase(0, kept);
  level.offset += static_cast<int64_t>(kept);
  level.done -= kept;
  const size_t held = level.text.size() - level.done;
  level.wanted = held > kOftenTried ? level.text.size() + held : 0;
}

void SplitChain::give_match(size_t step, TextRange match, const Output& output) {
  Level& level = levels_[step];
  const std::string_view piece =
      std::string_view(level.text).substr(match.begin, match.end - match.begin);
  whole_piece(step + 1, piece, level.offset + static_cast<int64_t>(match.begin),
              {output.tokens, nullptr});
  level.done = match.end;
  add_cut(output.cuts, level.offset + static_cast<int64_t>(match.end), output.tokens);
}

void SplitChain::give_rest(size_t step, size_t end, const Output& output) {
  Level& level = levels_[step];
  const std::string_view rest = std::string_view(level.text).substr(level.done, end - level.done);
  const int64_t offset = level.offset + static_cast<int64_t>(level.done);
  level.done = end;
  if (!steps_[step].keeps_rest || (rest.empty() && !level.opened)) return;
  if (level.opened) {
    add_to_piece(step + 1, rest, output);
    end_piece(step + 1, output);
    level.opened = false;
  } else {
    whole_piece(step + 1, rest, offset, output);
  }
  add_cut(output.cuts, level.offset + static_cast<int64_t>(end), output.tokens);
}

void SplitChain::open_rest(size_t step, size_t end, const Output& output) {
  Level& level = levels_[step];
  const std::string_view rest = std::string_view(level.text).substr(level.done, end - level.done);
  if (steps_[step].keeps_rest && !rest.empty()) {
    if (!level.opened) begin_piece(step + 1, level.offset + static_cast<int64_t>(level.done));
    level.opened = true;
    add_to_piece(step + 1, rest, output);
  }
  level.done = end;
}

}  // namespace tessera
