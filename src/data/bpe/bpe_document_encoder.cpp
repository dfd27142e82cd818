#include <algorithm>
#include <cstdint>
#include <deque>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <simdjson.h>

#include "base/error.h"
#include "base/utf8.h"
#include "data/bpe/added_token_finder.h"
#include "data/bpe/bpe_stages.h"
#include "data/bpe/split_chain.h"
#include "data/bpe/split_pattern.h"
#include "data/offset_map.h"

// BpeDocumentEncoder takes a document through the stages that bpe_stages.h describes. A text moves
// through its functions in the order of their declaration, from add_raw() to add_plain().

namespace tessera {
namespace {

size_t character_before(std::string_view text, size_t offset) {
  return offset == 0 ? 0 : character_begin(text, offset - 1);
}

/// A search for added tokens in a text that arrives in parts.
struct TokenSearch {
  std::string text;    // the text that is not passed on yet
  int64_t offset = 0;  // the offset of `text` in the whole text
  AddedTokenFinder::State state;
  std::deque<TextRange> ignored;  // offsets of tokens that stay text; no boundary is in them

  void begin(int64_t text_offset) {
    text.clear();
    offset = text_offset;
    state = {};
  }

  /// Drops the text that has been passed on, but for the character that a token may look back at.
  void shorten() {
    const size_t dropped = character_before(text, state.done);
    text.erase(0, dropped);
    offset += static_cast<int64_t>(dropped);
    state.done -= dropped;
    state.offset -= dropped;
    state.blank_end -= std::min(state.blank_end, dropped);
  }

  /// Returns whether an offset of the whole text is in a token that stays text. The offset must not
  /// be below that of an earlier call.
  bool is_in_ignored(int64_t text_offset) {
    const auto position = static_cast<size_t>(text_offset);
    while (!ignored.empty() && ignored.front().end <= position) ignored.pop_front();
    return !ignored.empty() && ignored.front().begin <= position;
  }
};

/// The encoder of make_bpe_document_encoder().
class BpeDocumentEncoder : public DocumentEncoder {
 public:
  explicit BpeDocumentEncoder(const BpeStages& stages)
      : stages_(stages), chain_(stages.steps, stages.patterns, stages.model) {}

  void begin(bool starts_document) override {
    raw_.begin(0);
    raw_.ignored.clear();
    part_.clear();
    part_seen_ = 0;
    normal_offset_ = 0;
    raw_offsets_.clear();
    normalized_.begin(0);
    normalized_.ignored.clear();
    in_plain_ = false;
    needs_prefix_ = starts_document;
    cuts_.clear();
    last_boundary_ = 0;
    given_ = {};
  }

  void add(std::string_view piece, std::vector<int32_t>& ids,
           std::vector<Boundary>& boundaries) override {
    // The pattern matcher is told not to check this itself.
    TESSERA_CHECK(simdjson::validate_utf8(piece.data(), piece.size()),
                  "a piece of {} bytes is not valid UTF-8", piece.size());
    begin_call(ids, boundaries);
    add_raw(piece, /*ends=*/false);
    report_boundaries(/*text_ends=*/false);
    given_.offset += static_cast<int64_t>(piece.size());
    end_call();
  }

  void finish(std::vector<int32_t>& ids, std::vector<Boundary>& boundaries) override {
    begin_call(ids, boundaries);
    add_raw("", /*ends=*/true);
    end_call();
    if (boundaries.empty() || boundaries.back() != given_) boundaries.push_back(given_);
  }

 private:
  void begin_call(std::vector<int32_t>& ids, std::vector<Boundary>& boundaries) {
    ids_ = &ids;
    boundaries_ = &boundaries;
    ids_before_ = static_cast<int64_t>(ids.size()) - given_.tokens;
    for (TokenCut& cut : cuts_) cut.tokens += ids_before_;
  }

  void end_call() {
    for (TokenCut& cut : cuts_) cut.tokens -= ids_before_;
    given_.tokens = static_cast<int64_t>(ids_->size()) - ids_before_;
  }

  /// Adds text to a search. Calls on_text(text, offset) and on_token(id) for each part found.
  template <typename OnText, typename OnToken>
  void find_tokens(const AddedTokenFinder& finder, TokenSearch& search, std::string_view text,
                   int64_t offset, bool ends, OnText&& on_text, OnToken&& on_token) {
    if (finder.finds_nothing()) {
      if (!text.empty()) on_text(text, offset);
      return;
    }
    search.text += text;
    finder.search(search.text, ends, search.state, split_scratch_);
    if (chain_.has_cuts()) {
      const auto base = static_cast<size_t>(search.offset);
      for (const auto& [begin, end] : search.state.ignored) {
        search.ignored.push_back({base + begin, base + end});
      }
    }
    for (const AddedTokenPart& part : search.state.parts) {
      const auto [begin, end] = part.range;
      if (part.id == AddedTokenPart::kText) {
        on_text(std::string_view(search.text).substr(begin, end - begin),
                search.offset + static_cast<int64_t>(begin));
      } else {
        on_token(part.id);
      }
    }
    search.shorten();
  }

  // Each of the following functions adds text to a stage, or ends the stage's text.

  void add_raw(std::string_view text, bool ends) {
    find_tokens(
        *stages_.raw_finder, raw_, text, given_.offset, ends,
        [&](std::string_view part, int64_t offset) { add_part(part, offset); },
        [&](int32_t id) {
          end_part();
          add_token(id);
        });
    if (ends) end_part();
  }

  void add_part(std::string_view text, int64_t offset) {
    if (!stages_.normalizer) {
      add_normalized(text, offset, /*ends=*/false);
      return;
    }
    if (part_.empty()) part_offset_ = offset;
    part_ += text;
    const size_t end = stages_.normalizer->last_cut(part_, part_seen_);
    part_seen_ = part_.size();
    if (end > 0) normalize(end);
  }

  void end_part() {
    if (!part_.empty()) normalize(part_.size());
    add_normalized("", normal_offset_, /*ends=*/true);
  }

  /// Normalises part_ up to `end`, a safe cut or the end of part_, and passes the result on.
  void normalize(size_t end) {
    const BpeNormalizer& normalizer = *stages_.normalizer;
    const std::string_view text = std::string_view(part_).substr(0, end);
    const auto add_run = [&](size_t begin, bool unchanged) {
      if (!chain_.has_cuts()) return;
      raw_offsets_.add(normal_offset_ + static_cast<int64_t>(normal_form_.size()),
                       part_offset_ + static_cast<int64_t>(begin), unchanged);
    };
    normal_form_.clear();
    for (size_t done = 0; done < text.size();) {
      const auto [change, after] = normalizer.next_change(text, done);
      add_run(done, /*unchanged=*/true);
      normal_form_ += text.substr(done, change - done);
      if (change < after) {
        add_run(change, /*unchanged=*/false);
        normalizer.append_normalized(text.substr(change, after - change), normal_form_);
        add_run(after, /*unchanged=*/true);
      }
      done = after;
    }
    const int64_t offset =
        std::exchange(normal_offset_, normal_offset_ + static_cast<int64_t>(normal_form_.size()));
    add_normalized(normal_form_, offset, /*ends=*/false);
    part_.erase(0, end);
    part_offset_ += static_cast<int64_t>(end);
    part_seen_ = part_.size();
  }

  void add_normalized(std::string_view text, int64_t offset, bool ends) {
    if (normalized_.text.empty()) normalized_.begin(offset);
    find_tokens(
        *stages_.normalized_finder, normalized_, text, offset, ends,
        [&](std::string_view part, int64_t part_offset) { add_plain(part, part_offset); },
        [&](int32_t id) { add_token(id); });
    if (!ends) return;
    normalized_.begin(offset);
    end_plain();
  }

  void add_plain(std::string_view text, int64_t offset) {
    if (!in_plain_) {
      in_plain_ = true;
      plain_begin_ = offset;
      const bool adds_space = stages_.adds_prefix_space && needs_prefix_ && !text.starts_with(' ');
      // The added space has no offset; the text after it keeps its own.
      chain_.begin(adds_space ? offset - 1 : offset);
      if (adds_space) chain_.add(" ", *ids_, cuts_);
    }
    chain_.add(text, *ids_, cuts_);
  }

  void end_plain() {
    if (!in_plain_) return;
    chain_.finish(*ids_, cuts_);
    report_boundaries(/*text_ends=*/true);
    in_plain_ = false;
  }

  /// The plain text after an added token gets a prefix space, because the library gives one to each
  /// text between added tokens.
  void add_token(int32_t id) {
    end_plain();
    ids_->push_back(id);
    needs_prefix_ = true;
  }

  /// Reports the cuts that are boundaries, as far as the searches have come.
  void report_boundaries(bool text_ends) {
    const auto stop = [](const AddedTokenFinder& finder, const TokenSearch& search) {
      return finder.finds_nothing() ? std::numeric_limits<int64_t>::max()
                                    : search.offset + static_cast<int64_t>(search.state.offset);
    };
    const int64_t raw_stop = stop(*stages_.raw_finder, raw_);
    const int64_t normalized_stop = stop(*stages_.normalized_finder, normalized_);
    size_t done = 0;
    for (; done < cuts_.size(); ++done) {
      const TokenCut cut = cuts_[done];
      const auto raw_offset = stages_.normalizer ? raw_offsets_.find(cut.offset) : cut.offset;
      if (cut.offset <= plain_begin_ || !raw_offset || *raw_offset <= last_boundary_) continue;
      // It is not known yet whether an added token begins where a search has stopped.
      if (!text_ends && (cut.offset >= normalized_stop || *raw_offset >= raw_stop)) break;
      if (raw_.is_in_ignored(*raw_offset) || normalized_.is_in_ignored(cut.offset)) continue;
      last_boundary_ = *raw_offset;
      boundaries_->push_back({*raw_offset, cut.tokens - ids_before_});
    }
    cuts_.erase(cuts_.begin(), cuts_.begin() + static_cast<int64_t>(done));
  }

  const BpeStages& stages_;
  SplitPattern::Scratch split_scratch_;
  TokenSearch raw_;
  std::string part_;         // the text of a part between tokens that is not normalised yet
  int64_t part_offset_ = 0;  // the offset of `part_` in the whole text
  size_t part_seen_ = 0;     // `part_` has no safe cut before this offset
  std::string normal_form_;
  int64_t normal_offset_ = 0;  // bytes of normal form passed on so far
  OffsetMap raw_offsets_;      // maps the normal form to the raw text
  TokenSearch normalized_;
  bool in_plain_ = false;      // inside a plain text
  int64_t plain_begin_ = 0;    // the offset of the plain text in the normal form
  bool needs_prefix_ = false;  // the next plain text gets a prefix space if the tokenizer adds one
  SplitChain chain_;
  /// Cuts that are not reported yet. During a call their counts of tokens are indices in *ids_.
  /// Between two calls they count the ids that all calls gave.
  std::vector<TokenCut> cuts_;
  int64_t last_boundary_ = 0;  // the offset of the last reported boundary
  Boundary given_;             // the bytes added and the number of ids given in earlier calls

  // Valid during a call:
  std::vector<int32_t>* ids_ = nullptr;
  std::vector<Boundary>* boundaries_ = nullptr;
  int64_t ids_before_ = 0;  // the size of `ids_` minus the number of ids given so far
};

}  // namespace

std::unique_ptr<DocumentEncoder> make_bpe_document_encoder(const BpeStages& stages) {
  return std::make_unique<BpeDocumentEncoder>(stages);
}

}  // namespace tessera
