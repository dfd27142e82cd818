#include "data/bpe/bpe_model.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/strict_json.h"
#include "base/utf8.h"
#include "data/bpe/token_spelling.h"
#include "data/sentencepiece/utf8_character.h"

// The constructor reads the tokens that merging begins with, the merges by their ids, and the
// pieces that are one token. encode() looks a piece up, and merges it if it is none of these.

namespace tessera {
namespace {

constexpr int32_t kNone = ByteStringMap::kNone;

/// Returns whether valid UTF-8 can contain a byte: no overlong forms, no values above U+10FFFF.
bool occurs_in_text(int byte) { return byte != 0xC0 && byte != 0xC1 && byte < 0xF5; }

/// Throws Error if one of the tokens of a merge is the token of a byte. The bytes of the merged
/// token could then not be told from its spelling.
void refuse_byte_tokens(const std::array<std::string, 3>& tokens, size_t merge,
                        const std::string& origin) {
  for (const std::string& token : tokens) {
    if (!fallback_byte(token)) continue;
    throw Error("{}: model.merges[{}] has {}, the token of a byte; expected none in merges", origin,
                merge, in_quotes(token));
  }
}

}  // namespace

BpeModel::BpeModel(const BpeDescription& description, const std::vector<int32_t>& control,
                   const std::string& origin)
    : byte_fallback_(description.byte_fallback),
      characters_(byte_fallback_ ? description.vocabulary.size() : 0),
      ignores_merges_(description.ignores_merges),
      merges_(description.merges.size()),
      pieces_(description.vocabulary.size()) {
  read_symbols(description, origin);
  read_merges(description, origin);
  read_pieces(description, control);
}

void BpeModel::read_symbols(const BpeDescription& description, const std::string& origin) {
  byte_ids_.fill(kNone);
  for (const auto& [token, id] : description.vocabulary) {
    byte_lengths_.resize(std::max(byte_lengths_.size(), static_cast<size_t>(id) + 1));
    const auto byte = byte_fallback_ ? fallback_byte(token) : std::nullopt;
    const auto bytes = byte ? std::string(1, static_cast<char>(*byte))
                            : merged_bytes(description, token).value_or("");
    if (bytes.empty()) continue;
    byte_lengths_[static_cast<size_t>(id)] = static_cast<uint32_t>(bytes.size());
    longest_token_ = std::max(longest_token_, bytes.size());
    if (byte_fallback_ && !byte) {
      if (bytes.size() > character_size(bytes)) continue;
      characters_.insert(bytes, id);
      character_ids_.push_back(id);
    } else if (bytes.size() == 1) {
      byte_ids_[static_cast<unsigned char>(bytes.front())] = id;
    }
  }
  require_bytes(description, origin);
}

void BpeModel::require_bytes(const BpeDescription& description, const std::string& origin) const {
  for (int byte = 0; byte < 256; ++byte) {
    if (byte_ids_[static_cast<size_t>(byte)] != kNone || !occurs_in_text(byte)) continue;
    // Gemma has a token for the tab and none for its byte. A byte below 0x80 is a character, and
    // one with a token never falls back to bytes.
    const char character = static_cast<char>(byte);
    if (byte_fallback_ && characters_.find({&character, 1}) != kNone) continue;
    const auto missing = static_cast<uint8_t>(byte);
    throw Error(
        "{}: model.vocab has no token {} for the byte 0x{:02X}, so that text would be lost; "
        "expected all bytes, as training with the whole byte alphabet gives",
        origin,
        in_quotes(description.byte_fallback ? fallback_token(missing) : symbol_of_byte(missing)),
        byte);
  }
}

void BpeModel::read_merges(const BpeDescription& description, const std::string& origin) {
  std::unordered_map<std::string_view, int32_t> ids;
  ids.reserve(description.vocabulary.size());
  for (const auto& [symbols, id] : description.vocabulary) ids.emplace(symbols, id);
  const auto id_of = [&](const std::string& symbols, size_t merge) {
    const auto found = ids.find(symbols);
    if (found != ids.end()) return found->second;
    throw Error("{}: model.merges[{}] needs the token {}, which model.vocab does not have", origin,
                merge, in_quotes(symbols));
  };
  for (size_t i = 0; i < description.merges.size(); ++i) {
    const auto& [left, right] = description.merges[i];
    if (byte_fallback_) refuse_byte_tokens({left, right, left + right}, i, origin);
    const int32_t merged = id_of(left + right, i);
    merges_.insert(id_of(left, i), id_of(right, i), static_cast<uint32_t>(i), merged);
    merged_ids_.push_back(merged);
    if (auto bytes = merged_bytes(description, left + right))
      merged_spellings_.push_back(std::move(*bytes));
  }
  std::ranges::sort(merged_ids_);
  std::ranges::sort(merged_spellings_);
}

void BpeModel::read_pieces(const BpeDescription& description, const std::vector<int32_t>& control) {
  Scratch scratch;
  for (const auto& [symbols, id] : description.vocabulary) {
    const auto bytes = merged_bytes(description, symbols);
    if (!bytes || bytes->empty() || std::ranges::find(control, id) != control.end()) continue;
    if (!description.ignores_merges) {
      // Merges may not lead to every token. A piece does not become such a token as a whole.
      merge(*bytes, scratch);
      if (scratch.tokens.size() != 1 || scratch.tokens.front() != id) continue;
    }
    pieces_.insert(*bytes, id);
  }
}

bool BpeModel::text_may_become(int32_t id) const {
  return std::ranges::find(byte_ids_, id) != byte_ids_.end() ||
         std::ranges::find(character_ids_, id) != character_ids_.end() ||
         std::ranges::binary_search(merged_ids_, id);
}

bool BpeModel::is_token_prefix(std::string_view bytes) const {
  // `bytes` itself, if it is a token, sorts before the longer tokens that begin with it.
  const auto after = std::ranges::upper_bound(merged_spellings_, bytes);
  return after != merged_spellings_.end() && std::string_view(*after).starts_with(bytes);
}

void BpeModel::append_symbols(std::string_view piece, std::vector<int32_t>& tokens) const {
  for (size_t i = 0; i < piece.size();) {
    size_t size = 1;
    // A piece may begin inside a character that fell back to its bytes.
    if (byte_fallback_ && !is_inside_character(piece[i])) {
      const std::string_view character = piece.substr(i, character_size(piece.substr(i)));
      if (const int32_t id = characters_.find(character); id != kNone) {
        tokens.push_back(id);
        i += character.size();
        continue;
      }
      size = character.size();
    }
    for (const size_t end = i + size; i < end; ++i) {
      tokens.push_back(byte_ids_[static_cast<unsigned char>(piece[i])]);
    }
  }
}

void BpeModel::merge(std::string_view piece, Scratch& scratch) const {
  scratch.tokens.clear();
  append_symbols(piece, scratch.tokens);
  merges_.merge(scratch.tokens, scratch.merge);
}

void BpeModel::encode(std::string_view piece, Scratch& scratch,
                      std::vector<int32_t>& tokens) const {
  if (const int32_t whole = pieces_.find(piece); whole != kNone) {
    tokens.push_back(whole);
    return;
  }
  merge(piece, scratch);
  tokens.insert(tokens.end(), scratch.tokens.begin(), scratch.tokens.end());
}

}  // namespace tessera
