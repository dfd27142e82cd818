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
#include "data/place_map.h"
#include "data/shards/work_item.h"
#include "data/tokenizer.h"

namespace tessera {

/// Tokenizes work items. The ids of a document are those of Tokenizer::encode() of the whole
/// document, however it is cut, read and packed.
///
/// A plain-text file that is cut into the slices of several items is one document. An item's tokens
/// are those from the first boundary of the encoding at or after its slice's begin to the first at
/// or after its end. To know the boundaries an encoder begins some kilobytes before the slice: that
/// is a guess, which nearly always falls in step with the document after a few words. Whether it
/// did is seen when the items are put together: the first item begins with the document, so its
/// tokens are right; and if an item begins where the one before ends, its tokens are right as well
/// (see DocumentEncoder). An item that does not is tokenized again from there (`from`).
class ItemTokenizer {
 public:
  /// All must outlive it. `beginning` stands before each document; items have about `item_bytes`.
  ItemTokenizer(const Corpus& corpus, const ReadOptions& options, const Tokenizer& tokenizer,
                const std::vector<int32_t>& beginning, int64_t item_bytes);

  /// Tokenizes an item into the file at `path`. `from`, if known, is where the item before ends.
  /// Adds to `tokens_done` as it goes. Throws Cancelled when `cancelled` is set, and Error as
  /// read_slice() does.
  WorkItemSummary run(const WorkItem& item, const fs::path& path, DType dtype,
                      std::optional<int64_t> from, const std::atomic<bool>& cancelled,
                      std::atomic<int64_t>& tokens_done);

 private:
  /// The two places of WorkItemSummary, for a slice.
  struct Stretch {
    int64_t from = WorkItemSummary::kUnknown;
    int64_t to = WorkItemSummary::kUnknown;
  };
  /// What is sought in the text of a slice.
  struct Wanted {
    int64_t begin;
    int64_t end;
  };

  void append(std::span<const int32_t> ids, WorkItemWriter& writer);
  /// Lines, and what is compressed: documents that lie in one slice.
  void read_documents(const Slice& slice, WorkItemWriter& writer, ReadStatistics& statistics);
  Stretch read_text(const Slice& slice, std::optional<int64_t> from, WorkItemWriter& writer,
                    ReadStatistics& statistics);
  Stretch encode_text(PlainText& text, Wanted wanted, std::optional<int64_t> from,
                      WorkItemWriter& writer);
  /// Those of the last call that can be among the sought, when the file has been read to `read`.
  std::span<const DocumentEncoder::Boundary> sought_boundaries(const Stretch& stretch,
                                                               Wanted wanted, int64_t read) const;
  /// Where a piece of text ends that begins at `place`.
  int64_t end_of_piece(const PlainText& text, int64_t place, Wanted wanted) const;

  const Corpus& corpus_;
  const ReadOptions& options_;
  const Tokenizer& tokenizer_;
  const std::vector<int32_t>& beginning_;
  const int64_t lead_;  // bytes before a slice at which its encoder begins
  std::unique_ptr<DocumentEncoder> encoder_;
  std::vector<int32_t> ids_;
  std::vector<DocumentEncoder::Boundary> boundaries_;
  const std::atomic<bool>* cancelled_ = nullptr;  // while run() runs, as the next one
  std::atomic<int64_t>* tokens_done_ = nullptr;
};

}  // namespace tessera
