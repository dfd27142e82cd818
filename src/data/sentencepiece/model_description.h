#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

enum class PieceType : uint8_t {
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6
};

struct SentencePiece {
  std::string text;
  float score = 0;
  PieceType type = PieceType::normal;
};

enum class SentencePieceAlgorithm : uint8_t { unigram = 1, bpe = 2, word = 3, character = 4 };

/// What a SentencePiece model file says of encoding. The initial values are those of a file that
/// leaves a field out.
struct SentencePieceDescription {
  std::vector<SentencePiece> pieces;  // by id
  SentencePieceAlgorithm algorithm = SentencePieceAlgorithm::unigram;
  bool byte_fallback = false;            ///< unknown characters become their bytes
  bool whitespace_as_suffix = false;     ///< the dummy space stands at the end
  bool adds_dummy_space = true;          ///< a space is added to each text
  bool removes_extra_whitespace = true;  ///< at both ends, and all but one within
  bool escapes_whitespace = true;        ///< spaces become U+2581
  std::string character_map;             ///< replacements of characters, see CharacterMap; or ""
};

/// Reads the protocol buffer of a .model file. Fields that do not decide encodings are passed over.
/// Throws Error naming `origin` when the bytes are no protocol buffer or a
/// piece holds a zero byte, which the library cannot take.
SentencePieceDescription read_sentencepiece_description(std::string_view model,
                                                        const std::string& origin);

/// The same model for text that is normalised already: it takes text as it is.
std::string model_of_normalized_text(std::string_view model, const std::string& origin);

}  // namespace tessera
