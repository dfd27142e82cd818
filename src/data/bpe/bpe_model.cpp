#include "data/bpe/bpe_model.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/strict_json.h"
#include "data/bpe/byte_alphabet.h"

namespace tessera {
namespace {

constexpr int32_t kNone = ByteStringMap::kNone;

/// Whether valid UTF-8 can contain a byte. It cannot contain overlong forms and values above
/// U+10FFFF.
bool occurs_in_text(int byte) { return byte != 0xC0 && byte != 0xC1 && byte < 0xF5; }

}  // namespace

BpeModel::BpeModel(const BpeDescription& description, const std::vector<int32_t>& control,
                   const std::string& origin)
    : ignores_merges_(description.ignores_merges),
      merges_(description.merges.size()),
      pieces_(description.vocabulary.size()) {
  read_bytes(description, origin);
  read_merges(description, origin);
  read_pieces(description, control);
}

void BpeModel::read_bytes(const BpeDescription& description, const std::string& origin) {
  byte_ids_.fill(kNone);
  for (const auto& [symbols, id] : description.vocabulary) {
    const auto bytes = bytes_of_symbols(symbols);
    lengths_.resize(std::max(lengths_.size(), static_cast<size_t>(id) + 1));
    if (!bytes) continue;
    lengths_[static_cast<size_t>(id)] = static_cast<uint32_t>(bytes->size());
    longest_ = std::max(longest_, bytes->size());
    if (bytes->size() == 1) byte_ids_[static_cast<unsigned char>(bytes->front())] = id;
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (byte_ids_[static_cast<size_t>(byte)] != kNone || !occurs_in_text(byte)) continue;
    throw Error(
        "{}: model.vocab has no token {} for the byte 0x{:02X}, so that text would be lost; "
        "expected all bytes, as training with the whole byte alphabet gives",
        origin, in_quotes(symbol_of_byte(static_cast<uint8_t>(byte))), byte);
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
    const int32_t merged = id_of(left + right, i);
    merges_.insert(id_of(left, i), id_of(right, i), static_cast<uint32_t>(i), merged);
    merged_ids_.push_back(merged);
    if (auto bytes = bytes_of_symbols(left + right)) spelled_.push_back(std::move(*bytes));
  }
  std::ranges::sort(merged_ids_);
  std::ranges::sort(spelled_);
}

void BpeModel::read_pieces(const BpeDescription& description, const std::vector<int32_t>& control) {
  Scratch scratch;
  for (const auto& [symbols, id] : description.vocabulary) {
    const auto bytes = bytes_of_symbols(symbols);
    if (!bytes || bytes->empty() || std::ranges::find(control, id) != control.end()) continue;
    if (!description.ignores_merges) {
      // Merges may not lead to every token. A token that they miss is not a piece as a whole.
      merge(*bytes, scratch);
      if (scratch.tokens.size() != 1 || scratch.tokens.front() != id) continue;
    }
    pieces_.insert(*bytes, id);
  }
}

bool BpeModel::makes(int32_t id) const {
  return std::ranges::find(byte_ids_, id) != byte_ids_.end() ||
         std::ranges::binary_search(merged_ids_, id);
}

bool BpeModel::begins_token(std::string_view bytes) const {
  // `bytes` itself, if it is a token, sorts before the longer tokens that begin with it.
  const auto after = std::ranges::upper_bound(spelled_, bytes);
  return after != spelled_.end() && std::string_view(*after).starts_with(bytes);
}

void BpeModel::merge(std::string_view piece, Scratch& scratch) const {
  scratch.tokens.clear();
  for (const char byte : piece) {
    scratch.tokens.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
  }
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
