#include "data/sentencepiece/bpe_merger.h"
#include "data/sentencepiece/byte_trie.h"
#include "data/sentencepiece/character_map.h"
#include "data/sentencepiece/normalized_text.h"
#include "data/sentencepiece/word_cuts.h"
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
    model_of_normalized_text(fuzz::text_of(data, size), "fuzz.model");
    CharacterMap map(description.character_map, "fuzz.model");
    if (!library_takes(description) || !map.makes_valid_utf8()) return;
    std::vector<ByteTrie::Key> keys;
    for (const SentencePiece& piece : description.pieces) {
      if (piece.type == PieceType::user_defined) keys.push_back({piece.text, 1});
    }
    const ByteTrie symbols(std::move(keys));
    const TextNormalizer normalizer(description, std::move(map), symbols);
    NormalizedText text(normalizer);
    text.begin(true);
    for (const std::string_view piece :
         {"the quick  brown fox\t日本 <0x41> \xE2\x96\x81 caf\xC3\xA9 e", "\xCC\x81\xFF ",
          "a b c "}) {
      text.add(piece);
    }
    text.finish();
    if (!SentencePieceMerger::supports(description)) return;
    const UnknownText unknown(description);
    const SentencePieceMerger merger(description, unknown);
    SentencePieceMerger::Scratch scratch;
    for (const auto& token : merger.encode_with_ends(text.text(), scratch)) {
      TESSERA_CHECK(token.id >= 0 && token.id < static_cast<int64_t>(description.pieces.size()),
                    "token {} of {}", token.id, description.pieces.size());
    }
  });
  return 0;
}
