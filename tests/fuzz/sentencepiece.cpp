#include "data/sentencepiece/encoder.h"
#include "fuzz/fuzz.h"

using namespace tessera;

/// What the SentencePiece library promises of a model that it takes, beside that it can be read.
static bool library_takes(const SentencePieceDescription& description) {
  int unknown = 0;
  for (const SentencePiece& piece : description.pieces) {
    if (piece.text.empty()) return false;
    if (piece.type == PieceType::byte && piece.text.size() != 6) return false;
    unknown += piece.type == PieceType::unknown ? 1 : 0;
  }
  return unknown == 1;
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::expect_result_or_error([&] {
    const SentencePieceDescription description =
        read_sentencepiece_description(fuzz::text_of(data, size), "fuzz.model");
    CharacterMap map(description.character_map, "fuzz.model");
    if (!library_takes(description)) return;
    const auto encoder = SentencePieceEncoder::create(description, std::move(map));
    if (!encoder) return;
    SentencePieceEncoder::Scratch scratch;
    for (const std::string_view text :
         {"the quick  brown fox\t日本 <0x41> \xE2\x96\x81 caf\xC3\xA9 e\xCC\x81\xFF ",
          "a b c d e"}) {
      for (const int32_t token : encoder->encode(text, scratch)) {
        TESSERA_CHECK(token >= 0 && token < static_cast<int64_t>(description.pieces.size()),
                      "token {} of {}", token, description.pieces.size());
      }
    }
  });
  return 0;
}
