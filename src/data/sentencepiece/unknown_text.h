#pragma once

#include <array>
#include <charconv>
#include <cstdint>
#include <string_view>
#include <vector>

#include "data/sentencepiece/model_description.h"

namespace tessera {

/// The tokens of characters that are in no piece. With byte fallback, such a character becomes the
/// tokens of its bytes. Otherwise a run of such characters becomes one unknown token.
class UnknownText {
 public:
  explicit UnknownText(const SentencePieceDescription& description)
      : as_bytes_(description.byte_fallback) {
    for (size_t id = 0; id < description.pieces.size(); ++id) {
      const SentencePiece& piece = description.pieces[id];
      if (piece.type == PieceType::unknown) unknown_id_ = static_cast<int32_t>(id);
      if (piece.type != PieceType::byte) continue;
      unsigned byte = 0;  // written as <0x0A>; the library checks that
      std::from_chars(piece.text.data() + 3, piece.text.data() + 5, byte, 16);
      byte_ids_[byte & 0xFF] = static_cast<int32_t>(id);
    }
  }

  /// Returns whether neighbouring tokens with this id become one: whether it is the unknown token.
  bool joins(int32_t id) const { return id == unknown_id_ && !as_bytes_; }

  /// Appends the tokens of `character` to `tokens`, the tokens of the text before it.
  void append(std::string_view character, std::vector<int32_t>& tokens) const {
    if (as_bytes_) {
      for (const char byte : character)
        tokens.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
    } else if (tokens.empty() || tokens.back() != unknown_id_) {
      tokens.push_back(unknown_id_);
    }
  }

 private:
  int32_t unknown_id_ = 0;
  bool as_bytes_;  // byte fallback
  std::array<int32_t, 256> byte_ids_{};
};

}  // namespace tessera
