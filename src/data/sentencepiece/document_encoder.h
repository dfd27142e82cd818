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

/// Encodes a document in pieces with a SentencePiece model. It takes three steps: normalise the
/// text, cut the normalised text at places that no piece can span, and encode the stretches between
/// them.
///
/// Some models (unigram) choose tokens by the sum of a stretch's scores. The sum is rounded, so a
/// longer stretch may choose differently between nearly equal ways. A document of up to 32 KiB is
/// therefore one stretch. In longer documents, later stretches end at landmarks, which depend only
/// on the text just before them.
class SentencePieceDocumentEncoder : public DocumentEncoder {
 public:
  /// `space_mark_bytes` are the tokens for a U+2581 in the text. With these it stays apart from the
  /// spaces of the text around it. If it is empty, U+2581 counts as a space. Both arguments must
  /// outlive this object.
  explicit SentencePieceDocumentEncoder(const SentencePieceModel& model,
                                        const std::vector<int32_t>& space_mark_bytes);

  void begin(bool starts_document) override;
  void add(std::string_view piece, std::vector<int32_t>& ids,
           std::vector<Boundary>& boundaries) override;
  void finish(std::vector<int32_t>& ids, std::vector<Boundary>& boundaries) override;

  /// The bytes of text that are held because later text may change their tokens, together with what
  /// is stored about them.
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
  size_t begin_ = 0;           // the begin of the text that is not settled
  size_t last_cut_ = 0;        // if it is above begin_, a stretch might end here
  size_t scanned_ = 0;         // a character; no other such place lies before it
  size_t without_symbol_ = 0;  // no user-defined symbol stands apart before it
  bool whole_ = false;         // in the text's first stretch, which ignores landmarks
  size_t since_landmark_ = 0;  // bytes since the last landmark
  int64_t text_begin_ = 0;     // bytes added before the text
  int64_t added_ = 0;
  int64_t given_ = 0;            // number of ids
  std::vector<int32_t> tokens_;  // to be given; the first is the last given one if has_last_
  bool has_last_ = false;
};

}  // namespace tessera
