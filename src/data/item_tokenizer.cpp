#include "data/item_tokenizer.h"

#include <algorithm>
#include <span>

#include "base/error.h"
#include "data/worker_pool.h"

// run() tokenizes the slices of an item one after another. Whole documents go through
// read_documents(). A slice of a plain-text file that may be cut anywhere goes through read_text()
// and encode_text(), which look for the boundaries at which the item's tokens begin and end.

namespace tessera {
namespace {

constexpr int64_t kUnknown = WorkItemSummary::kUnknown;
/// The most bytes before a slice at which its encoder begins.
constexpr int64_t kLongestLead = int64_t{4} << 10;
/// Pieces of text end at multiples of this offset in the file, wherever reading begins.
constexpr int64_t kTextPiece = int64_t{16} << 10;
/// The length of the first piece after an offset from which a boundary is sought. The next ones are
/// longer.
constexpr int64_t kShortPiece = 256;

/// Returns whether an item may begin anywhere in the file: in plain text that is not compressed.
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
    ItemRange range{slice.begin, slice.end};
    if (is_cut_freely(corpus_.files[static_cast<size_t>(slice.file)])) {
      range = read_text(slice, i == 0 ? from : std::nullopt, writer, summary.statistics);
    } else {
      read_documents(slice, writer, summary.statistics);
    }
    if (i == 0) summary.from = range.from;
    summary.to = range.to;
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

ItemTokenizer::ItemRange ItemTokenizer::read_text(const Slice& slice, std::optional<int64_t> from,
                                                  WorkItemWriter& writer,
                                                  ReadStatistics& statistics) {
  PlainText text(corpus_.files[static_cast<size_t>(slice.file)], options_);
  if (text.begin() == text.end()) {
    if (slice.begin == 0) ++statistics.empty_documents;
    return {slice.begin, slice.end};
  }
  const SliceBounds bounds{std::max(slice.begin, text.begin()), std::max(slice.end, text.begin())};
  if (bounds.begin == text.begin()) from = text.begin();
  // The item before may have read beyond this one to find a boundary.
  if (from && *from >= bounds.end) return {*from, *from};
  if (from == text.begin()) append(beginning_, writer);
  const ItemRange range = encode_text(text, bounds, from, writer);
  if (range.from == kUnknown) return range;
  statistics.invalid_utf8 += text.count_broken(range.from, range.to);
  if (range.to == text.end() && range.from < range.to) {
    const int32_t end = tokenizer_.end_of_document();
    append({&end, 1}, writer);
    ++statistics.documents;
  }
  return range;
}

int64_t ItemTokenizer::end_of_piece(const PlainText& text, int64_t begin,
                                    SliceBounds bounds) const {
  int64_t end = std::min(text.end(), (begin / kTextPiece + 1) * kTextPiece);
  for (const int64_t sought : {bounds.begin, bounds.end}) {
    int64_t next = sought;
    for (int64_t step = kShortPiece; next <= begin; step *= 2) next = sought + step;
    end = std::min(end, next);
  }
  return text.cut(end);
}

std::span<const DocumentEncoder::Boundary> ItemTokenizer::sought_boundaries(const ItemRange& range,
                                                                            SliceBounds bounds,
                                                                            int64_t read) const {
  const bool near = read >= (range.from == kUnknown ? bounds.begin : bounds.end);
  // The last boundary is always looked up, so that `offsets` can drop the offsets before it.
  return std::span(boundaries_)
      .last(near ? boundaries_.size() : std::min<size_t>(1, boundaries_.size()));
}

ItemTokenizer::ItemRange ItemTokenizer::encode_text(PlainText& text, SliceBounds bounds,
                                                    std::optional<int64_t> from,
                                                    WorkItemWriter& writer) {
  ItemRange range;
  if (from) range.from = *from;
  int64_t read = from ? *from : text.cut(bounds.begin - lead_);  // an offset in the file
  int64_t added = 0;                                             // an offset in the repaired text
  int64_t ids_given = 0;                                         // by earlier encoder calls
  OffsetMap offsets;
  encoder_->begin(/*starts_document=*/read == text.begin());
  for (;;) {
    if (*cancelled_) throw Cancelled();
    ids_.clear();
    boundaries_.clear();
    const bool ends = read == text.end();
    // Give the encoder the next piece, or end the document.
    if (ends) {
      encoder_->finish(ids_, boundaries_);
    } else {
      const int64_t end = end_of_piece(text, read, bounds);
      const std::string_view piece = text.read(read, end, added, offsets);
      encoder_->add(piece, ids_, boundaries_);
      added += static_cast<int64_t>(piece.size());
      read = end;
    }
    // Find the start and the end of the range among the boundaries.
    const auto count = static_cast<int64_t>(ids_.size());
    int64_t ids_begin = range.from == kUnknown ? count : 0;  // the ids in ids_ to write
    int64_t ids_end = count;
    for (const auto& boundary : sought_boundaries(range, bounds, read)) {
      const auto offset = offsets.find(boundary.text);
      // At its end a document may still give ids, so a boundary there counts only after finish().
      if (!offset || (*offset == text.end() && !ends)) continue;
      const int64_t before = *offset == text.end() ? count : boundary.tokens - ids_given;
      TESSERA_CHECK(before >= 0, "a boundary before ids that were given earlier");
      if (range.from == kUnknown && *offset >= bounds.begin) {
        range.from = *offset;
        ids_begin = before;
      }
      if (range.from != kUnknown && *offset >= bounds.end) {
        range.to = *offset;
        ids_end = before;
        break;
      }
    }
    if (ids_begin < ids_end) {  // ids of this call are in the range
      append(std::span(ids_).subspan(static_cast<size_t>(ids_begin),
                                     static_cast<size_t>(ids_end - ids_begin)),
             writer);
    }
    if (range.to != kUnknown) return range;
    TESSERA_CHECK(!ends, "an encoder that gave no boundary at a document's end");
    // A text without boundaries belongs to the item in which it begins.
    if (range.from == kUnknown && read >= bounds.end + lead_) return {};
    ids_given += count;
  }
}

}  // namespace tessera
