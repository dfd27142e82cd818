#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/file.h"
#include "data/corpus/corpus.h"
#include "data/corpus/documents.h"
#include "data/corpus/plain_text.h"
#include "data/document_encoder.h"
#include "data/offset_map.h"
#include "data/shards/work_item.h"
#include "data/tokenizer.h"

namespace tessera {

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
                const std::vector<int32_t>& beginning, int64_t item_bytes);

  /// Tokenizes an item into the file at `path`. `from` is the file offset at which the item before
  /// it ends, if known. Adds to `tokens_done` as it proceeds. Throws Cancelled when `cancelled` is
  /// set, and Error as read_slice() does.
  WorkItemSummary run(const WorkItem& item, const fs::path& path, DType dtype,
                      std::optional<int64_t> from, const std::atomic<bool>& cancelled,
                      std::atomic<int64_t>& tokens_done);

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
  void append(std::span<const int32_t> ids, WorkItemWriter& writer);
  /// Reads documents that are within one slice: JSONL lines and compressed files.
  void read_documents(const Slice& slice, WorkItemWriter& writer, ReadStatistics& statistics);
  ItemRange read_text(const Slice& slice, std::optional<int64_t> from, WorkItemWriter& writer,
                      ReadStatistics& statistics);
  ItemRange encode_text(PlainText& text, SliceBounds bounds, std::optional<int64_t> from,
                        WorkItemWriter& writer);
  /// Returns those of `boundaries_` that must be looked up when the file has been read up to offset
  /// `read`: all if one of them may be a sought boundary, otherwise only the last.
  std::span<const DocumentEncoder::Boundary> sought_boundaries(const ItemRange& range,
                                                               SliceBounds bounds,
                                                               int64_t read) const;
  /// Returns the offset at which the piece of text that begins at `begin` ends.
  int64_t end_of_piece(const PlainText& text, int64_t begin, SliceBounds bounds) const;

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

}  // namespace tessera
