#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "data/document_encoder.h"
#include "data/sentencepiece/model.h"
#include "data/sentencepiece/normalized_text.h"
#include "data/sentencepiece/stretch_encoder.h"

namespace tessera {

/// A document in pieces by a SentencePiece model, in three steps: its text is normalised; the
/// normalised text is cut at places over which no piece can lie; the stretches between them are
/// encoded.
///
/// Where the sum of a stretch's scores decides (unigram), it is rounded, and decides otherwise
/// between nearly equal ways than in a longer stretch. So a document of up to 32 KiB is one
/// stretch. After those, stretches end at landmarks, which depend on the text just before them
/// only.
class SentencePieceDocumentEncoder : public DocumentEncoder {
 public:
  /// `space_mark_bytes` are the tokens of a U+2581 in the text, which is apart from the spaces of
  /// the text around it; where there are none, it counts as a space. `model` and they must outlive
  /// this.
  explicit SentencePieceDocumentEncoder(const SentencePieceModel& model,
                                        const std::vector<int32_t>& space_mark_bytes);

  void begin(bool starts_document) override;
  void add(std::string_view piece, std::vector<int32_t>& ids,
           std::vector<Boundary>& boundaries) override;
  void finish(std::vector<int32_t>& ids, std::vector<Boundary>& boundaries) override;

  /// Bytes of text that are kept since later ones may change their tokens, and what belongs to
  /// them.
  size_t held_bytes() const { return text_.held_bytes(); }

 private:
  void begin_text(bool starts);
  void add_text(std::string_view piece, std::vector<Boundary>& boundaries);
  void finish_text(std::vector<Boundary>& boundaries);
  void settle(bool ends, std::vector<Boundary>& boundaries);
  void settle_to(size_t end, bool ends, std::vector<Boundary>& boundaries);
  void encode_to(size_t end);
  void encode_some(std::string_view stretch);
  void note_boundary(std::vector<Boundary>& boundaries);
  void give(std::vector<int32_t>& ids);
  void drop_settled();

  const SentencePieceModel& model_;
  const std::vector<int32_t>& space_mark_bytes_;
  const size_t longest_stretch_;
  std::unique_ptr<StretchEncoder> stretches_;
  NormalizedText text_;
  // Places in text_.text(), ascending.
  size_t begin_ = 0;           // of what is not settled
  size_t last_cut_ = 0;        // where a stretch might end, if it is above begin_
  size_t scanned_ = 0;         // a character, before which no other such place lies
  size_t without_symbol_ = 0;  // to there no user-defined symbol stands apart
  bool whole_ = false;         // the text's first stretch, for which no landmark counts
  size_t since_landmark_ = 0;  // bytes
  int64_t text_begin_ = 0;     // bytes added before the text
  int64_t added_ = 0;
  int64_t given_ = 0;            // ids
  std::vector<int32_t> tokens_;  // to be given, after the last one that was
  bool has_last_ = false;
};

}  // namespace tessera
