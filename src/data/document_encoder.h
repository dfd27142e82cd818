#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tessera {

/// Encodes one document that arrives in pieces of any length: the ids are those of
/// Tokenizer::encode() of the whole document, in memory that does not grow with it. Used by one
/// thread.
///
/// It also serves a document that several threads encode, each a stretch of it. An encoder may
/// begin anywhere in a document; where it did not begin at a place that is known to be a boundary,
/// what it gives before its first boundaries are guesses. The promise: where two encoders of the
/// same document have a boundary at the same place of the text, all that they give after it is
/// equal.
class DocumentEncoder {
 public:
  /// A place in the text at which the encoding of what follows depends on nothing before it.
  struct Boundary {
    int64_t text = 0;    ///< bytes added before it
    int64_t tokens = 0;  ///< ids settled before it
    bool operator==(const Boundary&) const = default;
  };

  virtual ~DocumentEncoder() = default;

  /// Forgets all, for another text. `starts_document`: the text is a document's start; otherwise it
  /// goes on with a document at a boundary, or somewhere in it, in which case see above.
  virtual void begin(bool starts_document) = 0;
  /// Adds a piece of valid UTF-8, and appends to `ids` those that nothing that follows can change,
  /// and to `boundaries` the places reached, ascending, one at least in every few kilobytes where
  /// the text has any.
  virtual void add(std::string_view piece, std::vector<int32_t>& ids,
                   std::vector<Boundary>& boundaries) = 0;
  /// The document ends: appends the ids that are left. Its end is a boundary too.
  virtual void finish(std::vector<int32_t>& ids, std::vector<Boundary>& boundaries) = 0;
};

}  // namespace tessera
