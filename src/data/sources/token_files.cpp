#include "data/sources/token_files.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/read_file.h"
#include "data/npy.h"

namespace tessera {
namespace {

/// The element types of .npy files, in the order of TokenType.
constexpr NpyType kNpyTypes[] = {{"<u2", 2}, {"<u4", 4}, {"<i4", 4}, {"<i8", 8}};

TokenFile open_npy(const ReadFile& file, std::span<const std::byte> head,
                   std::optional<TokenType> expected) {
  const std::string name = file.path().string();
  const NpyArray array = parse_npy_array(head, file.size(), name, kNpyTypes);
  if (array.shape.size() != 1) {
    throw Error("{} is an array of {} dimensions; expected 1: token ids one after another", name,
                array.shape.size());
  }
  const auto* type = std::ranges::find(kNpyTypes, array.type.name, &NpyType::name);
  const auto found = static_cast<TokenType>(type - kNpyTypes);
  if (expected && *expected != found) {
    throw Error("{} holds {}, as its header says, but dtype is \"{}\"; leave dtype out", name,
                word(found), word(*expected));
  }
  return {file.path(), file.size(), array.data_offset, found, array.shape[0]};
}

TokenFile open_raw(const ReadFile& file, std::optional<TokenType> type) {
  const std::string name = file.path().string();
  if (!type) {
    throw Error(
        "{} has no .npy header, so its element type must be said: set dtype to \"uint16\" or "
        "\"uint32\" (files of OLMo are uint16 where the vocabulary fits)",
        name);
  }
  const int64_t bytes = token_type_bytes(*type);
  const int64_t size = file.size();
  if (size % bytes != 0) {
    throw Error(
        "{} has {} bytes, no multiple of the {} of a {}; it is cut short or of another dtype", name,
        size, bytes, word(*type));
  }
  return {file.path(), size, 0, *type, size / bytes};
}

}  // namespace

StoredTokens open_token_files(const std::string& pattern, std::optional<TokenType> type,
                              DocumentEnds ends, const TokenIdRange& ids) {
  std::vector<TokenFile> files;
  for (const fs::path& path : find_inputs(pattern)) {
    const ReadFile file(path);
    std::vector<std::byte> head(static_cast<size_t>(std::min(kMaxNpyHeaderBytes, file.size())));
    file.read_at(0, head);
    files.push_back(has_npy_magic(head) ? open_npy(file, head, type) : open_raw(file, type));
    if (files.back().tokens == 0) {
      throw Error("{} holds no tokens; remove it or fetch it again", path.string());
    }
  }
  StoredTokens tokens(std::move(files), ids);
  const auto begins = tokens.file_begins();
  for (size_t file = 1; file < begins.size() && ends == DocumentEnds::add; ++file) {
    tokens.ensure_end_of_document(begins[file]);
  }
  return tokens;
}

}  // namespace tessera
