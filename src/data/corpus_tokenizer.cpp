#include "data/corpus_tokenizer.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/progress.h"
#include "base/text.h"
#include "data/corpus/plain_text.h"
#include "data/document_encoder.h"
#include "data/offset_map.h"
#include "data/scratch_pool.h"
#include "data/worker_pool.h"

// ItemTokenizer::run() tokenizes the slices of an item one after another. Whole documents go
// through read_documents(). A slice of a plain-text file that may be cut anywhere goes through
// read_text() and encode_text(), which look for the boundaries at which the item's tokens begin and
// end.

namespace tessera {
namespace {

constexpr const char* kInterrupted =
    "interrupted while tokenizing; run prepare again, without overwriting, to continue";

int64_t bytes_of(const WorkItem& item) {
  int64_t bytes = 0;
  for (const Slice& slice : item) bytes += slice.end - slice.begin;
  return bytes;
}

constexpr int64_t kUnknown = WorkItemSummary::kUnknown;
/// The most bytes before a slice at which its encoder begins.
constexpr int64_t kLongestLead = int64_t{4} << 10;
/// Pieces of text end at multiples of this offset in the file, wherever reading begins.
constexpr int64_t kTextPiece = int64_t{16} << 10;
/// The length of the first piece after an offset from which a boundary is sought. The next ones are
/// longer.
constexpr int64_t kShortPiece = 256;

/// Returns whether an item may begin anywhere in the file: in plain text that is not compressed.
bool may_be_cut_anywhere(const CorpusFile& file) {
  return file.format == Format::text && file.compression == Compression::none;
}

/// A tokenizer of work items. The ids of a document are those that Tokenizer::encode() gives for
/// the whole document, however it is compressed, cut and read.
///
/// A plain-text file is one document. If it is not compressed, it may be cut into slices of several
/// items. An item's tokens then run from the encoding's first boundary at or after the start of its
/// slice to the first boundary at or after its end. To find these boundaries, an encoder begins up
/// to 4 KiB before the slice. Its first ids may be wrong, but after a few words they nearly always
/// agree with those of the whole document. This is checked when all items are done. The first item
/// begins with the document, so its tokens are right. If an item begins where the one before it
/// ends, its tokens are right as well (see DocumentEncoder). Otherwise the item is tokenized again
/// from that end (`known_begin`).
class ItemTokenizer {
 public:
  /// All references must outlive this object. The tokens of `beginning` are put before each
  /// document. Items have about `item_bytes` bytes of text.
  ItemTokenizer(const Corpus& corpus, const ReadOptions& options, const Tokenizer& tokenizer,
                const std::vector<int32_t>& beginning, int64_t item_bytes)
      : corpus_(corpus),
        options_(options),
        tokenizer_(tokenizer),
        beginning_(beginning),
        lead_(std::min(kLongestLead, item_bytes)),
        encoder_(tokenizer.document_encoder()) {}

  /// Tokenizes an item into the file at `path`. `known_begin` is the file offset at which the item
  /// before it ends, if known. Adds to `tokens_done` as it proceeds. Throws Cancelled when
  /// `cancelled` is set, and Error as read_slice() does.
  WorkItemSummary run(const WorkItem& item, const fs::path& path, DType dtype,
                      std::optional<int64_t> known_begin, const std::atomic<bool>& cancelled,
                      std::atomic<int64_t>& tokens_done) {
    cancelled_ = &cancelled;
    tokens_done_ = &tokens_done;
    WorkItemSummary summary;
    WorkItemWriter writer(path, dtype);
    for (size_t i = 0; i < item.size(); ++i) {
      const Slice& slice = item[i];
      ItemRange range{slice.begin, slice.end};
      if (may_be_cut_anywhere(corpus_.files[static_cast<size_t>(slice.file)])) {
        range = read_text(slice, i == 0 ? known_begin : std::nullopt, writer, summary.statistics);
      } else {
        read_documents(slice, writer, summary.statistics);
      }
      if (i == 0) summary.begin = range.begin;
      summary.end = range.end;
    }
    writer.commit(summary.statistics, summary.begin, summary.end);
    summary.tokens = writer.tokens();
    return summary;
  }

 private:
  /// The range of the file whose tokens an item holds (see WorkItemSummary).
  struct ItemRange {
    int64_t begin = WorkItemSummary::kUnknown;
    int64_t end = WorkItemSummary::kUnknown;
  };
  /// The bounds of a slice in its file. encode_text() seeks the first boundary at or after each.
  struct SliceBounds {
    int64_t begin;
    int64_t end;
  };

  /// Writes ids and counts them in *tokens_done_.
  void append(std::span<const int32_t> ids, WorkItemWriter& writer) {
    writer.append(ids);
    *tokens_done_ += static_cast<int64_t>(ids.size());
  }

  /// Reads documents that are within one slice: JSONL lines and compressed files.
  void read_documents(const Slice& slice, WorkItemWriter& writer, ReadStatistics& statistics) {
    bool is_first = true;  // the next piece is the first of a document
    read_slice(corpus_, slice, options_, statistics, [&](std::string_view piece, bool is_last) {
      if (*cancelled_) throw Cancelled();
      if (piece.empty() && !is_last) return;
      ids_.clear();
      boundaries_.clear();
      if (is_first) {
        encoder_->begin(/*starts_document=*/true);
        ids_ = beginning_;
      }
      encoder_->add(piece, ids_, boundaries_);
      if (is_last) {
        encoder_->finish(ids_, boundaries_);
        ids_.push_back(tokenizer_.end_of_document());
      }
      is_first = is_last;
      append(ids_, writer);
    });
  }

  /// Tokenizes a slice of a plain-text file. Returns the range of the tokens that it has written.
  ItemRange read_text(const Slice& slice, std::optional<int64_t> known_begin,
                      WorkItemWriter& writer, ReadStatistics& statistics) {
    PlainText text(corpus_.files[static_cast<size_t>(slice.file)], options_);
    if (text.begin() == text.end()) {
      if (slice.begin == 0) ++statistics.empty_documents;
      return {slice.begin, slice.end};
    }
    const SliceBounds bounds{std::max(slice.begin, text.begin()),
                             std::max(slice.end, text.begin())};
    if (bounds.begin == text.begin()) known_begin = text.begin();
    // The item before may have read beyond this one to find a boundary.
    if (known_begin && *known_begin >= bounds.end) return {*known_begin, *known_begin};
    if (known_begin == text.begin()) append(beginning_, writer);
    const ItemRange range = encode_text(text, bounds, known_begin, writer);
    if (range.begin == kUnknown) return range;
    statistics.invalid_utf8 += text.count_broken(range.begin, range.end);
    if (range.end == text.end() && range.begin < range.end) {
      const int32_t end = tokenizer_.end_of_document();
      append({&end, 1}, writer);
      ++statistics.documents;
    }
    return range;
  }

  /// Writes the tokens between the first boundaries at or after both `bounds`. Returns their range,
  /// or an unknown one if no boundary is found.
  ItemRange encode_text(PlainText& text, SliceBounds bounds, std::optional<int64_t> known_begin,
                        WorkItemWriter& writer) {
    ItemRange range;
    if (known_begin) range.begin = *known_begin;
    // The file is read up to `read_end`. The encoder has `added` bytes of repaired text and has
    // given `ids_given` ids before the current call.
    int64_t read_end = known_begin ? *known_begin : text.next_cut(bounds.begin - lead_);
    int64_t added = 0;
    int64_t ids_given = 0;
    OffsetMap offsets;
    encoder_->begin(/*starts_document=*/read_end == text.begin());
    for (;;) {
      if (*cancelled_) throw Cancelled();
      ids_.clear();
      boundaries_.clear();
      const bool ends = read_end == text.end();
      // Give the encoder the next piece, or end the document.
      if (ends) {
        encoder_->finish(ids_, boundaries_);
      } else {
        const int64_t piece_end = end_of_piece(text, read_end, bounds);
        const std::string_view piece = text.read(read_end, piece_end, added, offsets);
        encoder_->add(piece, ids_, boundaries_);
        added += static_cast<int64_t>(piece.size());
        read_end = piece_end;
      }
      // Find the start and the end of the range among the boundaries.
      const auto id_count = static_cast<int64_t>(ids_.size());
      int64_t ids_begin = range.begin == kUnknown ? id_count : 0;  // the ids in ids_ to write
      int64_t ids_end = id_count;
      for (const auto& boundary : sought_boundaries(range, bounds, read_end)) {
        const auto offset = offsets.find(boundary.offset);
        // At its end a document may still give ids, so a boundary there counts only after finish().
        if (!offset || (*offset == text.end() && !ends)) continue;
        const int64_t ids_before = *offset == text.end() ? id_count : boundary.tokens - ids_given;
        TESSERA_CHECK(ids_before >= 0, "a boundary before ids that were given earlier");
        if (range.begin == kUnknown && *offset >= bounds.begin) {
          range.begin = *offset;
          ids_begin = ids_before;
        }
        if (range.begin != kUnknown && *offset >= bounds.end) {
          range.end = *offset;
          ids_end = ids_before;
          break;
        }
      }
      if (ids_begin < ids_end) {  // ids of this call are in the range
        append(std::span(ids_).subspan(static_cast<size_t>(ids_begin),
                                       static_cast<size_t>(ids_end - ids_begin)),
               writer);
      }
      if (range.end != kUnknown) return range;
      TESSERA_CHECK(!ends, "an encoder that gave no boundary at a document's end");
      // A text without boundaries belongs to the item in which it begins.
      if (range.begin == kUnknown && read_end >= bounds.end + lead_) return {};
      ids_given += id_count;
    }
  }

  /// Returns those of `boundaries_` that must be looked up when the file has been read up to offset
  /// `read_end`: all if one of them may be a sought boundary, otherwise only the last.
  std::span<const DocumentEncoder::Boundary> sought_boundaries(const ItemRange& range,
                                                               SliceBounds bounds,
                                                               int64_t read_end) const {
    const bool may_be_sought = read_end >= (range.begin == kUnknown ? bounds.begin : bounds.end);
    // The last boundary is always looked up, so that `offsets` can drop the offsets before it.
    return std::span(boundaries_)
        .last(may_be_sought ? boundaries_.size() : std::min<size_t>(1, boundaries_.size()));
  }

  /// Returns the offset at which the piece of text that begins at `begin` ends.
  int64_t end_of_piece(const PlainText& text, int64_t begin, SliceBounds bounds) const {
    int64_t end = std::min(text.end(), (begin / kTextPiece + 1) * kTextPiece);
    for (const int64_t sought : {bounds.begin, bounds.end}) {
      int64_t next = sought;
      for (int64_t step = kShortPiece; next <= begin; step *= 2) next = sought + step;
      end = std::min(end, next);
    }
    return text.next_cut(end);
  }

  const Corpus& corpus_;
  const ReadOptions& options_;
  const Tokenizer& tokenizer_;
  const std::vector<int32_t>& beginning_;
  const int64_t lead_;  // the bytes before a slice at which its encoder begins
  std::unique_ptr<DocumentEncoder> encoder_;
  std::vector<int32_t> ids_;
  std::vector<DocumentEncoder::Boundary> boundaries_;
  const std::atomic<bool>* cancelled_ = nullptr;  // valid while run() runs, like tokens_done_
  std::atomic<int64_t>* tokens_done_ = nullptr;
};

/// One call of tokenize_corpus(): find the missing items, tokenize them in parallel, then tokenize
/// again, one after another, the items that do not begin right.
class CorpusTokenizer {
 public:
  CorpusTokenizer(const TokenizeTask& task, const std::vector<WorkItem>& items,
                  const std::vector<fs::path>& paths, const Logger& logger)
      : task_(task), items_(items), paths_(paths), logger_(logger) {}

  TokenizedItems run() {
    const std::vector<size_t> missing = find_missing();
    if (!missing.empty()) tokenize(missing);
    tokenize_again();
    return {std::move(summaries_), static_cast<int64_t>(items_.size() - missing.size())};
  }

 private:
  /// Reads the summaries of the items that are done. Returns the indices of the others.
  std::vector<size_t> find_missing() {
    std::vector<size_t> missing;
    summaries_.resize(items_.size());
    for (size_t i = 0; i < items_.size(); ++i) {
      std::optional<WorkItemSummary> done;
      if (path_exists(paths_[i])) done = read_work_item(paths_[i], task_.dtype);
      if (done) {
        summaries_[i] = std::move(*done);
      } else {
        missing.push_back(i);
      }
    }
    if (missing.size() < items_.size()) {
      logger_.info("continuing: {} of {} work items were tokenized before",
                   items_.size() - missing.size(), items_.size());
    }
    return missing;
  }

  void tokenize(const std::vector<size_t>& missing) {
    int64_t earlier_bytes = task_.corpus.bytes;
    for (const size_t item : missing) earlier_bytes -= bytes_of(items_[item]);
    // The work that the threads have done so far: bytes in this run, the others in all runs.
    std::atomic<int64_t> bytes{0};
    std::atomic<int64_t> tokens{0};
    std::atomic<int64_t> bad_lines{0};
    for (const WorkItemSummary& summary : summaries_) {
      tokens += summary.tokens;
      bad_lines += summary.statistics.bad_lines;
    }
    Progress progress;
    const Stopwatch watch;
    const int64_t total_bytes = task_.corpus.bytes;
    const auto show = [&](bool last) {
      if (!task_.progress) return;
      const int64_t done = bytes;
      const double fraction = static_cast<double>(done) / static_cast<double>(std::max<int64_t>(
                                                              1, total_bytes - earlier_bytes));
      const std::string state =
          fmt::format("{} of {}, {} tokens", format_bytes(earlier_bytes + done),
                      format_bytes(total_bytes), format_count(static_cast<double>(tokens)));
      progress.show("tokenizing " + Progress::bar(fraction, watch.seconds(), state), last);
    };
    run_workers(
        task_.threads, static_cast<int64_t>(missing.size()), kInterrupted,
        [&](int64_t i, const std::atomic<bool>& cancelled) {
          const size_t item = missing[static_cast<size_t>(i)];
          WorkItemSummary& summary = summaries_[item];
          summary =
              item_tokenizer()->run(items_[item], paths_[item], task_.dtype, {}, cancelled, tokens);
          bytes += bytes_of(items_[item]);
          bad_lines += summary.statistics.bad_lines;
          if (bad_lines > task_.max_bad_lines) {
            require_few_bad_lines(
                bad_lines, task_.max_bad_lines,
                describe_bad_lines(task_.corpus, summary.statistics.first_bad_lines));
          }
        },
        [&] { show(false); });
    show(true);
  }

  ScratchPool<ItemTokenizer>::Lease item_tokenizer() {
    return tokenizers_.lease([&] {
      return std::make_unique<ItemTokenizer>(task_.corpus, task_.read_options, task_.tokenizer,
                                             task_.beginning, task_.item_bytes);
    });
  }

  /// Returns whether an item begins at the start of a file, or where the item before it ends.
  bool begins_right(size_t item) const {
    return items_[item].front().begin == 0 || summaries_[item].begin == summaries_[item - 1].end;
  }

  /// Tokenizes again each item that does not begin where the item before it ends. The new end of an
  /// item is the start of the next one, so this works on one item at a time. A single worker does
  /// it, because run_workers() handles Ctrl-C.
  void tokenize_again() {
    size_t first = 0;
    while (first < items_.size() && begins_right(first)) ++first;
    if (first == items_.size()) return;
    logger_.info("tokenizing again where the parts of a file did not join, from work item {} of {}",
                 first, items_.size());
    run_workers(
        1, 1, kInterrupted,
        [&](int64_t, const std::atomic<bool>& cancelled) {
          const auto tokenizer = item_tokenizer();
          std::atomic<int64_t> tokens{0};
          for (size_t i = first; i < items_.size(); ++i) {
            if (begins_right(i)) continue;
            summaries_[i] = tokenizer->run(items_[i], paths_[i], task_.dtype, summaries_[i - 1].end,
                                           cancelled, tokens);
          }
        },
        [] {});
  }

  const TokenizeTask& task_;
  const std::vector<WorkItem>& items_;
  const std::vector<fs::path>& paths_;
  const Logger& logger_;
  std::vector<WorkItemSummary> summaries_;
  ScratchPool<ItemTokenizer> tokenizers_;  // one per thread
};

}  // namespace

std::vector<std::string> describe_bad_lines(const Corpus& corpus,
                                            const std::vector<BadLine>& lines) {
  std::vector<std::string> descriptions;
  for (const BadLine& line : lines) descriptions.push_back(describe_bad_line(corpus, line));
  return descriptions;
}

void require_few_bad_lines(int64_t bad_lines, int64_t allowed,
                           const std::vector<std::string>& descriptions) {
  if (bad_lines <= allowed) return;
  throw Error(
      "the JSONL input holds {} or more invalid lines; at most {} are allowed:\n  {}\nmend "
      "them, or allow more (max_bad_lines)",
      bad_lines, allowed, join(descriptions, "\n  "));
}

TokenizedItems tokenize_corpus(const TokenizeTask& task, const std::vector<WorkItem>& items,
                               const std::vector<fs::path>& paths, const Logger& logger) {
  return CorpusTokenizer(task, items, paths, logger).run();
}

}  // namespace tessera
