#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "data/sentencepiece/model_description.h"

namespace tessera {

/// The tokens of characters that are in no piece: the tokens of the characters' bytes, or one
/// unknown token for a run of such characters.
class UnknownText {
 public:
  explicit UnknownText(const SentencePieceDescription& description);

  /// Returns whether neighbouring tokens with this id become one.
  bool joins(int32_t id) const { return id == id_ && !as_bytes_; }

  /// Appends the tokens of `character` to `tokens`, which are those of the text before it.
  void append(std::string_view character, std::vector<int32_t>& tokens) const {
    if (as_bytes_) {
      for (const char byte : character)
        tokens.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
    } else if (tokens.empty() || tokens.back() != id_) {
      tokens.push_back(id_);
    }
  }

 private:
  int32_t id_ = 0;
  bool as_bytes_;
  std::array<int32_t, 256> byte_ids_{};
};

}  // namespace tessera
