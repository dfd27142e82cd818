#include "data/sentencepiece/unknown_text.h"

#include <charconv>

namespace tessera {

UnknownText::UnknownText(const SentencePieceDescription& description)
    : as_bytes_(description.byte_fallback) {
  for (size_t id = 0; id < description.pieces.size(); ++id) {
    const SentencePiece& piece = description.pieces[id];
    if (piece.type == PieceType::unknown) id_ = static_cast<int32_t>(id);
    if (piece.type != PieceType::byte) continue;
    unsigned byte = 0;  // written as <0x0A>; the library checks that
    std::from_chars(piece.text.data() + 3, piece.text.data() + 5, byte, 16);
    byte_ids_[byte & 0xFF] = static_cast<int32_t>(id);
  }
}

}  // namespace tessera
