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
bool is_cut_freely(const CorpusFile& file) {
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
/// from that end (`from`).
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

  /// Tokenizes an item into the file at `path`. `from` is the file offset at which the item before
  /// it ends, if known. Adds to `tokens_done` as it proceeds. Throws Cancelled when `cancelled` is
  /// set, and Error as read_slice() does.
  WorkItemSummary run(const WorkItem& item, const fs::path& path, DType dtype,
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

 private:
  /// The range of the file whose tokens an item holds: `from` and `to` of WorkItemSummary.
  struct ItemRange {
    int64_t from = WorkItemSummary::kUnknown;
    int64_t to = WorkItemSummary::kUnknown;
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

  ItemRange read_text(const Slice& slice, std::optional<int64_t> from, WorkItemWriter& writer,
                      ReadStatistics& statistics) {
    PlainText text(corpus_.files[static_cast<size_t>(slice.file)], options_);
    if (text.begin() == text.end()) {
      if (slice.begin == 0) ++statistics.empty_documents;
      return {slice.begin, slice.end};
    }
    const SliceBounds bounds{std::max(slice.begin, text.begin()),
                             std::max(slice.end, text.begin())};
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

  ItemRange encode_text(PlainText& text, SliceBounds bounds, std::optional<int64_t> from,
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

  /// Returns those of `boundaries_` that must be looked up when the file has been read up to offset
  /// `read`: all if one of them may be a sought boundary, otherwise only the last.
  std::span<const DocumentEncoder::Boundary> sought_boundaries(const ItemRange& range,
                                                               SliceBounds bounds,
                                                               int64_t read) const {
    const bool near = read >= (range.from == kUnknown ? bounds.begin : bounds.end);
    // The last boundary is always looked up, so that `offsets` can drop the offsets before it.
    return std::span(boundaries_)
        .last(near ? boundaries_.size() : std::min<size_t>(1, boundaries_.size()));
  }

  /// Returns the offset at which the piece of text that begins at `begin` ends.
  int64_t end_of_piece(const PlainText& text, int64_t begin, SliceBounds bounds) const {
    int64_t end = std::min(text.end(), (begin / kTextPiece + 1) * kTextPiece);
    for (const int64_t sought : {bounds.begin, bounds.end}) {
      int64_t next = sought;
      for (int64_t step = kShortPiece; next <= begin; step *= 2) next = sought + step;
      end = std::min(end, next);
    }
    return text.cut(end);
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
  CorpusTokenizer(const CorpusTokens& wanted, const std::vector<WorkItem>& items,
                  const std::vector<fs::path>& paths, const Logger& logger)
      : wanted_(wanted), items_(items), paths_(paths), logger_(logger) {}

  TokenizedItems run() {
    const std::vector<size_t> missing = find_missing();
    if (!missing.empty()) tokenize(missing);
    mend_beginnings();
    return {std::move(summaries_), static_cast<int64_t>(items_.size() - missing.size())};
  }

 private:
  /// Reads the summaries of the items that are done. Returns the indices of the others.
  std::vector<size_t> find_missing() {
    std::vector<size_t> missing;
    summaries_.resize(items_.size());
    for (size_t i = 0; i < items_.size(); ++i) {
      std::optional<WorkItemSummary> done;
      if (path_exists(paths_[i])) done = read_work_item(paths_[i], wanted_.dtype);
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
    int64_t bytes_before = wanted_.corpus.bytes;
    for (const size_t item : missing) bytes_before -= bytes_of(items_[item]);
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
    const int64_t bytes_all = wanted_.corpus.bytes;
    const auto show = [&](bool last) {
      if (!wanted_.progress) return;
      const int64_t done = bytes;
      const double fraction = static_cast<double>(done) /
                              static_cast<double>(std::max<int64_t>(1, bytes_all - bytes_before));
      const std::string state =
          fmt::format("{} of {}, {} tokens", format_bytes(bytes_before + done),
                      format_bytes(bytes_all), format_count(static_cast<double>(tokens)));
      progress.show("tokenizing " + Progress::bar(fraction, watch.seconds(), state), last);
    };
    run_workers(
        wanted_.threads, static_cast<int64_t>(missing.size()), kInterrupted,
        [&](int64_t i, const std::atomic<bool>& cancelled) {
          const size_t item = missing[static_cast<size_t>(i)];
          WorkItemSummary& summary = summaries_[item];
          summary = item_tokenizer()->run(items_[item], paths_[item], wanted_.dtype, {}, cancelled,
                                          tokens);
          bytes += bytes_of(items_[item]);
          bad_lines += summary.statistics.bad_lines;
          if (bad_lines > wanted_.max_bad_lines) {
            require_few_bad_lines(
                bad_lines, wanted_.max_bad_lines,
                describe_bad_lines(wanted_.corpus, summary.statistics.first_bad_lines));
          }
        },
        [&] { show(false); });
    show(true);
  }

  ScratchPool<ItemTokenizer>::Lease item_tokenizer() {
    return tokenizers_.lease([&] {
      return std::make_unique<ItemTokenizer>(wanted_.corpus, wanted_.read_options,
                                             wanted_.tokenizer, wanted_.beginning,
                                             wanted_.item_bytes);
    });
  }

  /// Returns whether an item begins at the start of a file, or where the item before it ends.
  bool begins_right(size_t item) const {
    return items_[item].front().begin == 0 || summaries_[item].from == summaries_[item - 1].to;
  }

  /// Tokenizes again each item that does not begin where the item before it ends. The new end of an
  /// item is the start of the next one, so this works on one item at a time. A single worker does
  /// it, because run_workers() handles Ctrl-C.
  void mend_beginnings() {
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
            summaries_[i] = tokenizer->run(items_[i], paths_[i], wanted_.dtype,
                                           summaries_[i - 1].to, cancelled, tokens);
          }
        },
        [] {});
  }

  const CorpusTokens& wanted_;
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
                           const std::vector<std::string>& first) {
  if (bad_lines <= allowed) return;
  throw Error(
      "the JSONL input holds {} or more invalid lines; at most {} are allowed:\n  {}\nmend "
      "them, or allow more (max_bad_lines)",
      bad_lines, allowed, join(first, "\n  "));
}

TokenizedItems tokenize_corpus(const CorpusTokens& wanted, const std::vector<WorkItem>& items,
                               const std::vector<fs::path>& paths, const Logger& logger) {
  return CorpusTokenizer(wanted, items, paths, logger).run();
}

}  // namespace tessera
