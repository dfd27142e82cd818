#include "data/bpe/bpe_document_encoder.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <simdjson.h>

#include "base/error.h"
#include "base/utf8.h"

namespace tessera {
namespace {

size_t character_before(std::string_view text, size_t offset) {
  return offset == 0 ? 0 : character_begin(text, offset - 1);
}

}  // namespace

BpeDocumentEncoder::BpeDocumentEncoder(const BpeStages& stages)
    : stages_(stages), chain_(stages.steps, stages.patterns, stages.model) {}

void BpeDocumentEncoder::Finding::begin(int64_t at) {
  text.clear();
  offset = at;
  search = {};
}

void BpeDocumentEncoder::Finding::shorten() {
  const size_t dropped = character_before(text, search.done);
  text.erase(0, dropped);
  offset += static_cast<int64_t>(dropped);
  search.done -= dropped;
  search.offset -= dropped;
  search.blank -= std::min(search.blank, dropped);
}

bool BpeDocumentEncoder::Finding::passes_by(int64_t at) {
  const auto wanted = static_cast<size_t>(at);
  while (!passed_by.empty() && passed_by.front().end <= wanted) passed_by.pop_front();
  return !passed_by.empty() && passed_by.front().begin <= wanted;
}

void BpeDocumentEncoder::begin(bool starts_document) {
  raw_.begin(0);
  raw_.passed_by.clear();
  part_.clear();
  part_seen_ = 0;
  normal_offset_ = 0;
  raw_offsets_.clear();
  normalized_.begin(0);
  normalized_.passed_by.clear();
  in_text_ = false;
  space_due_ = starts_document;
  cuts_.clear();
  last_boundary_ = 0;
  given_ = {};
}

void BpeDocumentEncoder::begin_call(std::vector<int32_t>& ids, std::vector<Boundary>& boundaries) {
  ids_ = &ids;
  boundaries_ = &boundaries;
  ids_before_ = static_cast<int64_t>(ids.size()) - given_.tokens;
  for (TokenCut& cut : cuts_) cut.tokens += ids_before_;
}

void BpeDocumentEncoder::end_call() {
  for (TokenCut& cut : cuts_) cut.tokens -= ids_before_;
  given_.tokens = static_cast<int64_t>(ids_->size()) - ids_before_;
}

void BpeDocumentEncoder::add(std::string_view piece, std::vector<int32_t>& ids,
                             std::vector<Boundary>& boundaries) {
  // The pattern matcher is told not to check this itself.
  TESSERA_CHECK(simdjson::validate_utf8(piece.data(), piece.size()),
                "a piece of {} bytes is not valid UTF-8", piece.size());
  begin_call(ids, boundaries);
  add_raw(piece, /*ends=*/false);
  give_boundaries(/*text_ends=*/false);
  given_.text += static_cast<int64_t>(piece.size());
  end_call();
}

void BpeDocumentEncoder::finish(std::vector<int32_t>& ids, std::vector<Boundary>& boundaries) {
  begin_call(ids, boundaries);
  add_raw("", /*ends=*/true);
  end_call();
  if (boundaries.empty() || boundaries.back() != given_) boundaries.push_back(given_);
}

void BpeDocumentEncoder::add_raw(std::string_view text, bool ends) {
  const AddedTokenFinder& finder = *stages_.found_raw;
  if (finder.finds_nothing()) {
    if (!text.empty()) add_part(text, given_.text);
  } else {
    raw_.text += text;
    find(finder, raw_, ends);
    for (const AddedTokenPart& part : raw_.search.parts) {
      const auto [begin, end] = part.range;
      if (part.id == AddedTokenPart::kText) {
        add_part(std::string_view(raw_.text).substr(begin, end - begin),
                 raw_.offset + static_cast<int64_t>(begin));
      } else {
        end_part();
        give_token(part.id);
      }
    }
    raw_.shorten();
  }
  if (ends) end_part();
}

void BpeDocumentEncoder::find(const AddedTokenFinder& finder, Finding& finding, bool ends) {
  finder.search(finding.text, ends, finding.search, split_);
  if (!chain_.has_cuts()) return;
  const auto base = static_cast<size_t>(finding.offset);
  for (const auto& [begin, end] : finding.search.passed_by) {
    finding.passed_by.push_back({base + begin, base + end});
  }
}

void BpeDocumentEncoder::add_part(std::string_view text, int64_t offset) {
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

void BpeDocumentEncoder::end_part() {
  if (!part_.empty()) normalize(part_.size());
  add_normalized("", normal_offset_, /*ends=*/true);
}

void BpeDocumentEncoder::normalize(size_t end) {
  const BpeNormalizer& normalizer = *stages_.normalizer;
  const std::string_view text = std::string_view(part_).substr(0, end);
  const auto add_run = [&](size_t begin, bool kept) {
    if (!chain_.has_cuts()) return;
    raw_offsets_.add(normal_offset_ + static_cast<int64_t>(normal_form_.size()),
                     part_offset_ + static_cast<int64_t>(begin), kept);
  };
  normal_form_.clear();
  for (size_t done = 0; done < text.size();) {
    const auto [change, after] = normalizer.next_change(text, done);
    add_run(done, /*kept=*/true);
    normal_form_ += text.substr(done, change - done);
    if (change < after) {
      add_run(change, /*kept=*/false);
      normalizer.append_normalized(text.substr(change, after - change), normal_form_);
      add_run(after, /*kept=*/true);
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

void BpeDocumentEncoder::add_normalized(std::string_view text, int64_t offset, bool ends) {
  const AddedTokenFinder& finder = *stages_.found_normalized;
  if (finder.finds_nothing()) {
    if (!text.empty()) add_plain(text, offset);
  } else {
    if (normalized_.text.empty()) normalized_.begin(offset);
    normalized_.text += text;
    find(finder, normalized_, ends);
    for (const AddedTokenPart& part : normalized_.search.parts) {
      const auto [begin, end] = part.range;
      if (part.id == AddedTokenPart::kText) {
        add_plain(std::string_view(normalized_.text).substr(begin, end - begin),
                  normalized_.offset + static_cast<int64_t>(begin));
      } else {
        give_token(part.id);
      }
    }
    normalized_.shorten();
    if (ends) normalized_.begin(offset);
  }
  if (ends) end_plain();
}

void BpeDocumentEncoder::add_plain(std::string_view text, int64_t offset) {
  if (!in_text_) {
    in_text_ = true;
    text_begin_ = offset;
    const bool spaced = stages_.adds_prefix_space && space_due_ && !text.starts_with(' ');
    chain_.begin(spaced ? offset - 1 : offset);
    if (spaced) chain_.add(" ", *ids_, cuts_);
  }
  chain_.add(text, *ids_, cuts_);
}

void BpeDocumentEncoder::end_plain() {
  if (!in_text_) return;
  chain_.finish(*ids_, cuts_);
  give_boundaries(/*text_ends=*/true);
  in_text_ = false;
}

/// Gives an added token. The next text gets a prefix space, because the library gives one to each
/// text between added tokens.
void BpeDocumentEncoder::give_token(int32_t id) {
  end_plain();
  ids_->push_back(id);
  space_due_ = true;
}

void BpeDocumentEncoder::give_boundaries(bool text_ends) {
  const auto stop = [](const AddedTokenFinder& finder, const Finding& finding) {
    return finder.finds_nothing() ? std::numeric_limits<int64_t>::max()
                                  : finding.offset + static_cast<int64_t>(finding.search.offset);
  };
  const int64_t raw_stop = stop(*stages_.found_raw, raw_);
  const int64_t normalized_stop = stop(*stages_.found_normalized, normalized_);
  size_t done = 0;
  for (; done < cuts_.size(); ++done) {
    const TokenCut cut = cuts_[done];
    const auto raw_offset = stages_.normalizer ? raw_offsets_.find(cut.offset) : cut.offset;
    if (cut.offset <= text_begin_ || !raw_offset || *raw_offset <= last_boundary_) continue;
    // It is not known yet whether an added token begins where a search has stopped.
    if (!text_ends && (cut.offset >= normalized_stop || *raw_offset >= raw_stop)) break;
    if (raw_.passes_by(*raw_offset) || normalized_.passes_by(cut.offset)) continue;
    last_boundary_ = *raw_offset;
    boundaries_->push_back({*raw_offset, cut.tokens - ids_before_});
  }
  cuts_.erase(cuts_.begin(), cuts_.begin() + static_cast<int64_t>(done));
}

}  // namespace tessera
