#include "data/sentencepiece/bpe_merger.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <set>
#include <span>
#include <unordered_map>
#include <unordered_set>

#include <simdjson.h>

#include "data/sentencepiece/utf8_character.h"

// The constructor turns the pieces into symbols and a MergeTable: each way to join two symbols to a
// piece is a merge, ranked by the piece's score. encode() then merges a word's symbols.

namespace tessera {
namespace {

/// Returns whether text can become the piece by merges.
bool comes_from_merges(const SentencePiece& piece) {
  return piece.type == PieceType::normal || piece.type == PieceType::user_defined;
}

/// Two symbols that become a piece, `merged`.
struct Merge {
  int32_t left;
  int32_t right;
  int32_t merged;
};

/// All symbols: the pieces, numbered by their ids, then the characters that are not pieces.
class Symbols {
 public:
  explicit Symbols(const std::vector<SentencePiece>& pieces)
      : next_symbol_(static_cast<int32_t>(pieces.size())) {
    for (size_t id = 0; id < pieces.size(); ++id) {
      if (comes_from_merges(pieces[id])) ids_.emplace(pieces[id].text, static_cast<int32_t>(id));
    }
    for (const SentencePiece& piece : pieces) {
      if (!comes_from_merges(piece)) continue;
      for (std::string_view text = piece.text; !text.empty();) {
        const std::string_view character = text.substr(0, character_size(text));
        characters_.insert(character);
        next_symbol_ += static_cast<int32_t>(ids_.emplace(character, next_symbol_).second);
        text.remove_prefix(character.size());
      }
    }
    for (const auto& [text, id] : ids_) lengths_.insert(text.size());
  }

  /// Returns a number that is not a symbol.
  int32_t no_symbol() const { return next_symbol_; }
  const std::unordered_set<std::string_view>& characters() const { return characters_; }
  /// Returns the lengths of the symbols in bytes, each length once.
  const std::set<size_t>& lengths() const { return lengths_; }
  int32_t find(std::string_view text) const {
    const auto found = ids_.find(text);
    return found == ids_.end() ? no_symbol() : found->second;
  }

 private:
  std::unordered_map<std::string_view, int32_t> ids_;
  std::unordered_set<std::string_view> characters_;
  std::set<size_t> lengths_;
  int32_t next_symbol_;
};

/// Returns every way in which two symbols become a piece. Only lengths of existing symbols are
/// tried: a piece may be as long as the whole file, and testing a cut reads all of its bytes.
std::vector<Merge> merges_of(const std::vector<SentencePiece>& pieces, const Symbols& symbols) {
  std::vector<Merge> merges;
  for (size_t id = 0; id < pieces.size(); ++id) {
    const std::string_view text = pieces[id].text;
    if (!comes_from_merges(pieces[id])) continue;
    for (const size_t cut : symbols.lengths()) {
      if (cut >= text.size()) break;
      if (!symbols.lengths().contains(text.size() - cut)) continue;
      const int32_t left = symbols.find(text.substr(0, cut));
      const int32_t right = symbols.find(text.substr(cut));
      if (left != symbols.no_symbol() && right != symbols.no_symbol()) {
        merges.push_back({left, right, static_cast<int32_t>(id)});
      }
    }
  }
  return merges;
}

/// A cache of the tokens of recent words: most words of a text are among few different ones. Each
/// hash has one entry, which holds the last word with that hash.
class WordCache {
 public:
  static constexpr size_t kLongestWord = 30;  // bytes
  static constexpr size_t kMaxTokens = 8;

  /// An entry fills one cache line of the processor.
  struct alignas(64) Entry {
    uint8_t size = 0;   // bytes of the word
    uint8_t count = 0;  // number of tokens
    std::array<char, kLongestWord> word{};
    std::array<int32_t, kMaxTokens> ids{};

    bool holds(std::string_view wanted) const {
      return size == wanted.size() && std::memcmp(word.data(), wanted.data(), size) == 0;
    }
    std::span<const int32_t> tokens() const { return std::span(ids).first(count); }
  };
  static_assert(sizeof(Entry) == 64);

  WordCache() : entries_(kEntries) {}

  /// Returns the entry for a word. The entry may hold a different word, or none.
  Entry& entry_of(std::string_view word) { return entries_[hash_of_key(word) % kEntries]; }

  static bool fits(std::string_view word, size_t tokens) {
    return word.size() <= kLongestWord && tokens <= kMaxTokens;
  }

  /// Stores a word, for which fits() must hold.
  static void store(Entry& entry, std::string_view word, std::span<const int32_t> tokens) {
    entry.size = static_cast<uint8_t>(word.size());
    entry.count = static_cast<uint8_t>(tokens.size());
    std::memcpy(entry.word.data(), word.data(), word.size());
    std::memcpy(entry.ids.data(), tokens.data(), tokens.size_bytes());
  }

 private:
  static constexpr size_t kEntries = size_t{1} << 15;

  std::vector<Entry> entries_;
};

/// An encoder of stretches by the merger, with a cache.
class MergingEncoder : public StretchEncoder {
 public:
  explicit MergingEncoder(const SentencePieceMerger& merger) : merger_(merger) {}

  void encode(std::string_view stretch, std::vector<int32_t>& tokens) override {
    if (stretch.size() > WordCache::kLongestWord) {
      merger_.encode(stretch, scratch_, tokens);
      return;
    }
    WordCache::Entry& entry = words_.entry_of(stretch);
    if (entry.holds(stretch)) {
      for (const int32_t token : entry.tokens()) tokens.push_back(token);
      return;
    }
    const size_t before = tokens.size();
    const bool known = merger_.encode(stretch, scratch_, tokens);
    const auto added = std::span<const int32_t>(tokens).subspan(before);
    // Words with unknown characters are not stored: their tokens may join the token before them.
    if (known && WordCache::fits(stretch, added.size())) WordCache::store(entry, stretch, added);
  }

  std::vector<Token> encode_with_ends(std::string_view stretch) override {
    return merger_.encode_with_ends(stretch, scratch_);
  }

 private:
  const SentencePieceMerger& merger_;
  SentencePieceMerger::Scratch scratch_;
  WordCache words_;
};

}  // namespace

bool SentencePieceMerger::supports(const SentencePieceDescription& description) {
  std::unordered_set<std::string_view> merged;
  for (const SentencePiece& piece : description.pieces) {
    if (comes_from_merges(piece)) merged.insert(piece.text);
  }
  return std::ranges::none_of(description.pieces, [&](const SentencePiece& piece) {
    if (piece.type == PieceType::unused) return true;  // the library splits it again
    if (!simdjson::validate_utf8(piece.text.data(), piece.text.size())) return true;
    if (comes_from_merges(piece) || piece.type == PieceType::unknown) return false;
    // The library would find a control or byte piece that the text spells.
    return merged.contains(piece.text) || character_size(piece.text) == piece.text.size();
  });
}

SentencePieceMerger::SentencePieceMerger(const SentencePieceDescription& description,
                                         const UnknownText& unknown)
    : unknown_(unknown) {
  const auto& pieces = description.pieces;
  const Symbols symbols(pieces);
  unknown_symbol_ = symbols.no_symbol();
  for (const SentencePiece& piece : pieces) {
    piece_sizes_.push_back(static_cast<uint32_t>(piece.text.size()));
  }
  ascii_symbols_.fill(unknown_symbol_);
  non_ascii_ = std::make_unique<ByteStringMap>(symbols.characters().size());
  for (const std::string_view character : symbols.characters()) {
    const int32_t symbol = symbols.find(character);
    if (character.size() > 1) {
      non_ascii_->insert(character, symbol);
    } else {
      ascii_symbols_[static_cast<unsigned char>(character.front())] = symbol;
    }
  }
  // A merge's rank is the index of its score among all scores, in descending order.
  std::vector<float> scores;
  for (const SentencePiece& piece : pieces) scores.push_back(piece.score);
  std::ranges::sort(scores, std::greater<>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
  const std::vector<Merge> merges = merges_of(pieces, symbols);
  merges_ = std::make_unique<MergeTable>(merges.size());
  for (const auto& [left, right, merged] : merges) {
    const float score = pieces[static_cast<size_t>(merged)].score;
    const auto rank = std::ranges::lower_bound(scores, score, std::greater<>()) - scores.begin();
    merges_->insert(left, right, static_cast<uint32_t>(rank), merged);
  }
}

/// Leaves the symbols of the word in `scratch`.
void SentencePieceMerger::merge(std::string_view word, Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  symbols.clear();
  for (std::string_view rest = word; !rest.empty();) {
    const size_t size = character_size(rest);
    symbols.push_back(symbol_of(rest.substr(0, size)));
    rest.remove_prefix(size);
  }
  merges_->merge(symbols, scratch.merge);
}

bool SentencePieceMerger::encode(std::string_view word, Scratch& scratch,
                                 std::vector<int32_t>& tokens) const {
  merge(word, scratch);
  bool known = true;
  for (const int32_t symbol : scratch.symbols) {
    const auto id = static_cast<size_t>(symbol);
    if (id < piece_sizes_.size()) {
      tokens.push_back(symbol);
      word.remove_prefix(piece_sizes_[id]);
    } else {
      const size_t size = character_size(word);
      unknown_.append(word.substr(0, size), tokens);
      word.remove_prefix(size);
      known = false;
    }
  }
  return known;
}

std::vector<StretchEncoder::Token> SentencePieceMerger::encode_with_ends(std::string_view word,
                                                                         Scratch& scratch) const {
  merge(word, scratch);
  std::vector<StretchEncoder::Token> tokens;
  std::vector<int32_t> ids;  // the tokens of one symbol
  size_t end = 0;
  for (const int32_t symbol : scratch.symbols) {
    const size_t begin = end;
    ids.clear();
    if (const auto id = static_cast<size_t>(symbol); id < piece_sizes_.size()) {
      end += piece_sizes_[id];
      ids.push_back(symbol);
    } else {
      end += character_size(word.substr(begin));
      unknown_.append(word.substr(begin, end - begin), ids);
    }
    if (unknown_.joins(ids.front()) && !tokens.empty() && unknown_.joins(tokens.back().id)) {
      tokens.back().end = end;
      continue;
    }
    for (const int32_t id : ids) tokens.push_back({id, begin});
    tokens.back().end = end;
  }
  return tokens;
}

std::unique_ptr<StretchEncoder> SentencePieceMerger::stretch_encoder() const {
  return std::make_unique<MergingEncoder>(*this);
}

}  // namespace tessera
