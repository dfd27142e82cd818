#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// The types of pieces and, below, the algorithms, by their numbers in the .model file.
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

/// The part of a SentencePiece model file that decides encodings, with the format's defaults.
struct SentencePieceDescription {
  std::vector<SentencePiece> pieces;  // by id
  SentencePieceAlgorithm algorithm = SentencePieceAlgorithm::unigram;
  bool byte_fallback = false;            ///< unknown characters are encoded as their bytes
  bool whitespace_as_suffix = false;     ///< the dummy space is at the end
  bool adds_dummy_space = true;          ///< a space is added to each text
  bool removes_extra_whitespace = true;  ///< at both ends, and repeated spaces within
  bool escapes_whitespace = true;        ///< spaces become U+2581
  std::string character_map;             ///< the rules of a CharacterMap; "": none
};

/// Reads the protocol buffer of a .model file. Skips fields that do not affect encodings. Throws
/// Error naming `origin` when the bytes are not a protocol buffer, and when a piece holds a zero
/// byte, which the library cannot take.
SentencePieceDescription read_sentencepiece_description(std::string_view model,
                                                        const std::string& origin);

/// Returns a copy of a model file that does not normalise, for text that is normalised already.
std::string model_of_normalized_text(std::string_view model, const std::string& origin);

}  // namespace tessera
