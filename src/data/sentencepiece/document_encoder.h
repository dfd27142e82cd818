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

/// An encoder of a document that arrives in pieces, with a SentencePiece model. It has three steps:
/// normalise the text, cut the normalised text at offsets that no piece can span (see WordCuts),
/// and encode the stretches between them.
///
/// Some models (unigram) choose tokens by the sum of a stretch's scores. The sum is rounded, so in
/// a longer stretch the choice between nearly equal sums may differ. With the models that the
/// library encodes, a document of up to 32 KiB is therefore one stretch. In longer documents, later
/// stretches end at landmarks, which depend only on the text just before them.
class SentencePieceDocumentEncoder : public DocumentEncoder {
 public:
  /// `space_mark_bytes` are the tokens for a U+2581 in the text, which keep it apart from the
  /// spaces of the text around it. If it is empty, U+2581 counts as a space. Both arguments must
  /// outlive this object.
  explicit SentencePieceDocumentEncoder(const SentencePieceModel& model,
                                        const std::vector<int32_t>& space_mark_bytes);

  void begin(bool starts_document) override;
  void add(std::string_view piece, std::vector<int32_t>& ids,
           std::vector<Boundary>& boundaries) override;
  void finish(std::vector<int32_t>& ids, std::vector<Boundary>& boundaries) override;

  /// Returns the bytes of memory for text that is held because later text may change its tokens.
  size_t held_bytes() const { return text_.held_bytes(); }

 private:
  // A text is the document or, with space_mark_bytes_, a part of it between two U+2581.
  void begin_text(bool starts);
  void add_text(std::string_view piece, std::vector<Boundary>& boundaries);
  void finish_text(std::vector<Boundary>& boundaries);
  void encode_certain(bool ends, std::vector<Boundary>& boundaries);
  void encode_certain_before(size_t end, bool ends, std::vector<Boundary>& boundaries);
  void encode_to(size_t end);
  void encode_first_tokens(std::string_view stretch);
  void report_boundary(std::vector<Boundary>& boundaries);
  void give_tokens(std::vector<int32_t>& ids);
  void drop_encoded();

  const SentencePieceModel& model_;
  const std::vector<int32_t>& space_mark_bytes_;
  const size_t longest_stretch_;
  std::unique_ptr<StretchEncoder> stretch_encoder_;
  NormalizedText text_;
  // Offsets in text_.text(), ascending.
  size_t unencoded_begin_ = 0;  // the start of the text that is not encoded
  size_t last_cut_ = 0;         // if it is above unencoded_begin_, a stretch may end here
  size_t scanned_end_ = 0;  // a character's start; no stretch may end between last_cut_ and here
  size_t symbol_free_end_ = 0;     // no symbol that is encoded apart begins before it
  bool in_first_stretch_ = false;  // in the text's first stretch, which ignores landmarks
  size_t bytes_since_landmark_ = 0;
  int64_t text_begin_ = 0;  // the bytes added before the text
  int64_t bytes_added_ = 0;
  int64_t ids_given_ = 0;
  std::vector<int32_t> tokens_;  // to be given, except for the first if first_is_given_
  bool first_is_given_ = false;  // a given token is kept, because the next one may join it
};

}  // namespace tessera
