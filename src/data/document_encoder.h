#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tessera {

/// An encoder of one document that arrives in pieces of any length. The ids are those that
/// Tokenizer::encode() gives for the whole document. Memory does not grow with the document. Only
/// one thread may use an encoder.
///
/// Several threads can also encode one document together, each with its own encoder for its own
/// part. An encoder may begin anywhere in the document. If it does not begin at a known boundary,
/// its first ids may differ from those of the whole document. But if two encoders of one document
/// report a boundary at the same offset of the text, all their ids after that offset are equal.
class DocumentEncoder {
 public:
  /// An offset in the text from which on the encoding does not depend on anything before it.
  struct Boundary {
    int64_t offset = 0;  ///< the bytes added before the boundary
    int64_t tokens = 0;  ///< the number of ids before it
    bool operator==(const Boundary&) const = default;
  };

  virtual ~DocumentEncoder() = default;

  /// Resets the encoder for another text. If `starts_document` is set, the text begins a document.
  /// Otherwise it continues a document, from a boundary or from any other offset (see above).
  virtual void begin(bool starts_document) = 0;
  /// Adds a piece of valid UTF-8. Appends to `ids` the tokens that no later text can change.
  /// Appends to `boundaries`, in ascending order, those that have become certain since the last
  /// call. Where the text has boundaries, at least one is reported every few kilobytes.
  virtual void add(std::string_view piece, std::vector<int32_t>& ids,
                   std::vector<Boundary>& boundaries) = 0;
  /// Ends the document and appends the remaining ids. The end is a boundary too.
  virtual void finish(std::vector<int32_t>& ids, std::vector<Boundary>& boundaries) = 0;
};

}  // namespace tessera
