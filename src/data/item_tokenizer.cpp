#include "data/item_tokenizer.h"

#include <algorithm>
#include <span>

#include "base/error.h"
#include "data/worker_pool.h"

namespace tessera {
namespace {

constexpr int64_t kUnknown = WorkItemSummary::kUnknown;
constexpr int64_t kLongestLead = int64_t{4} << 10;
/// Pieces of text end at multiples of this offset in the file, wherever reading began.
constexpr int64_t kTextPiece = int64_t{16} << 10;
/// The length of the first piece after an offset from which a boundary is sought. The next ones are
/// longer.
constexpr int64_t kShortPiece = 256;

bool is_cut_freely(const CorpusFile& file) {
  return file.format == Format::text && file.compression == Compression::none;
}

}  // namespace

ItemTokenizer::ItemTokenizer(const Corpus& corpus, const ReadOptions& options,
                             const Tokenizer& tokenizer, const std::vector<int32_t>& beginning,
                             int64_t item_bytes)
    : corpus_(corpus),
      options_(options),
      tokenizer_(tokenizer),
      beginning_(beginning),
      lead_(std::min(kLongestLead, item_bytes)),
      encoder_(tokenizer.document_encoder()) {}

WorkItemSummary ItemTokenizer::run(const WorkItem& item, const fs::path& path, DType dtype,
                                   std::optional<int64_t> from, const std::atomic<bool>& cancelled,
                                   std::atomic<int64_t>& tokens_done) {
  cancelled_ = &cancelled;
  tokens_done_ = &tokens_done;
  WorkItemSummary summary;
  WorkItemWriter writer(path, dtype);
  for (size_t i = 0; i < item.size(); ++i) {
    const Slice& slice = item[i];
    Stretch stretch{slice.begin, slice.end};
    if (is_cut_freely(corpus_.files[static_cast<size_t>(slice.file)])) {
      stretch = read_text(slice, i == 0 ? from : std::nullopt, writer, summary.statistics);
    } else {
      read_documents(slice, writer, summary.statistics);
    }
    if (i == 0) summary.from = stretch.from;
    summary.to = stretch.to;
  }
  writer.commit(summary.statistics, summary.from, summary.to);
  summary.tokens = writer.tokens();
  return summary;
}

void ItemTokenizer::append(std::span<const int32_t> ids, WorkItemWriter& writer) {
  writer.append(ids);
  *tokens_done_ += static_cast<int64_t>(ids.size());
}

void ItemTokenizer::read_documents(const Slice& slice, WorkItemWriter& writer,
                                   ReadStatistics& statistics) {
  bool begins = true;  // the next piece begins a document
  read_slice(corpus_, slice, options_, statistics, [&](std::string_view piece, bool ends) {
    if (*cancelled_) throw Cancelled();
    if (piece.empty() && !ends) return;
    ids_.clear();
    boundaries_.clear();
    if (begins) {
      encoder_->begin(/*starts_document=*/true);
      ids_ = beginning_;
    }
    encoder_->add(piece, ids_, boundaries_);
    if (ends) {
      encoder_->finish(ids_, boundaries_);
      ids_.push_back(tokenizer_.end_of_document());
    }
    begins = ends;
    append(ids_, writer);
  });
}

ItemTokenizer::Stretch ItemTokenizer::read_text(const Slice& slice, std::optional<int64_t> from,
                                                WorkItemWriter& writer,
                                                ReadStatistics& statistics) {
  PlainText text(corpus_.files[static_cast<size_t>(slice.file)], options_);
  if (text.begin() == text.end()) {
    if (slice.begin == 0) ++statistics.empty_documents;
    return {slice.begin, slice.end};
  }
  const Wanted wanted{std::max(slice.begin, text.begin()), std::max(slice.end, text.begin())};
  if (wanted.begin == text.begin()) from = text.begin();
  // The item before may have read beyond this one to find a boundary.
  if (from && *from >= wanted.end) return {*from, *from};
  if (from == text.begin()) append(beginning_, writer);
  const Stretch stretch = encode_text(text, wanted, from, writer);
  if (stretch.from == kUnknown) return stretch;
  statistics.invalid_utf8 += text.count_broken(stretch.from, stretch.to);
  if (stretch.to == text.end() && stretch.from < stretch.to) {
    const int32_t end = tokenizer_.end_of_document();
    append({&end, 1}, writer);
    ++statistics.documents;
  }
  return stretch;
}

int64_t ItemTokenizer::end_of_piece(const PlainText& text, int64_t begin, Wanted wanted) const {
  int64_t end = std::min(text.end(), (begin / kTextPiece + 1) * kTextPiece);
  for (const int64_t sought : {wanted.begin, wanted.end}) {
    int64_t next = sought;
    for (int64_t step = kShortPiece; next <= begin; step *= 2) next = sought + step;
    end = std::min(end, next);
  }
  return text.cut(end);
}

std::span<const DocumentEncoder::Boundary> ItemTokenizer::sought_boundaries(const Stretch& stretch,
                                                                            Wanted wanted,
                                                                            int64_t read) const {
  const bool near = read >= (stretch.from == kUnknown ? wanted.begin : wanted.end);
  // The last boundary is always looked up, so that `offsets` can drop the offsets before it.
  return std::span(boundaries_)
      .last(near ? boundaries_.size() : std::min<size_t>(1, boundaries_.size()));
}

ItemTokenizer::Stretch ItemTokenizer::encode_text(PlainText& text, Wanted wanted,
                                                  std::optional<int64_t> from,
                                                  WorkItemWriter& writer) {
  Stretch stretch;
  if (from) stretch.from = *from;
  int64_t read = from ? *from : text.cut(wanted.begin - lead_);  // an offset in the file
  int64_t added = 0;                                             // an offset in the repaired text
  int64_t given = 0;  // number of ids from earlier encoder calls
  OffsetMap offsets;
  encoder_->begin(/*starts_document=*/read == text.begin());
  for (;;) {
    if (*cancelled_) throw Cancelled();
    ids_.clear();
    boundaries_.clear();
    const bool ends = read == text.end();
    if (ends) {
      encoder_->finish(ids_, boundaries_);
    } else {
      const int64_t end = end_of_piece(text, read, wanted);
      const std::string_view piece = text.read(read, end, added, offsets);
      encoder_->add(piece, ids_, boundaries_);
      added += static_cast<int64_t>(piece.size());
      read = end;
    }
    const auto count = static_cast<int64_t>(ids_.size());
    int64_t first = stretch.from == kUnknown ? count : 0;  // index in ids_ of the first to write
    int64_t last = count;
    for (const auto& boundary : sought_boundaries(stretch, wanted, read)) {
      const auto offset = offsets.find(boundary.text);
      // At its end a document may still give ids, so a boundary there counts only after finish().
      if (!offset || (*offset == text.end() && !ends)) continue;
      const int64_t before = *offset == text.end() ? count : boundary.tokens - given;
      TESSERA_CHECK(before >= 0, "a boundary before ids that were given earlier");
      if (stretch.from == kUnknown && *offset >= wanted.begin) {
        stretch.from = *offset;
        first = before;
      }
      if (stretch.from != kUnknown && *offset >= wanted.end) {
        stretch.to = *offset;
        last = before;
        break;
      }
    }
    if (first < last) {
      append(std::span(ids_).subspan(static_cast<size_t>(first), static_cast<size_t>(last - first)),
             writer);
    }
    if (stretch.to != kUnknown) return stretch;
    TESSERA_CHECK(!ends, "an encoder that gave no boundary at a document's end");
    // A text without boundaries belongs to the item in which it begins.
    if (stretch.from == kUnknown && read >= wanted.end + lead_) return {};
    given += count;
  }
}

}  // namespace tessera
