#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file_window.h"
#include "data/sources/token_files.h"

// open_megatron() checks the whole index (MegatronIndex) against the size of PREFIX.bin, opens
// PREFIX.bin as StoredTokens, and then adds or checks the documents' ends.

namespace tessera {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kIndexMagic = "MMIDIDX\0\0"sv;
// The byte offsets of the header's fields. The magic before them is kIndexMagic.
constexpr int64_t kVersionOffset = 9;
constexpr int64_t kTypeOffset = 17;
constexpr int64_t kSequencesOffset = 18;
constexpr int64_t kBoundariesOffset = 26;
constexpr int64_t kIndexHeaderBytes = 34;
/// The number of documents whose last tokens are checked if every document must end with an
/// end-of-document token. To check all of a large dataset would take long.
constexpr int64_t kCheckedDocuments = 1024;

/// Megatron-LM's codes of element types, for errors.
constexpr std::string_view kIndexTypeNames[] = {"",      "uint8",   "int8",    "int16", "int32",
                                                "int64", "float64", "float32", "uint16"};

/// The index of a dataset, PREFIX.idx (see token_files.h for its layout). The constructor reads the
/// header. check() must be called before document_end(). Each array is read from start to end
/// through a window of its own, so memory does not grow with the index.
class MegatronIndex {
 public:
  explicit MegatronIndex(const fs::path& path)
      : file_(path), lengths_(file_), pointers_(file_), document_begins_(file_) {
    FileWindow head(file_);
    std::array<char, kIndexMagic.size()> magic{};
    if (file_.size() >= static_cast<int64_t>(kIndexMagic.size()))
      magic = head.load<decltype(magic)>(0);
    if (!std::ranges::equal(magic, kIndexMagic)) {
      fail("it does not begin with MMIDIDX: is it the index of a Megatron-LM indexed dataset?");
    }
    if (file_.size() < kIndexHeaderBytes) fail("it ends inside its header");
    if (const auto version = head.load<uint64_t>(kVersionOffset); version != 1) {
      fail("its version is {}, expected 1", version);
    }
    read_type(head.load<uint8_t>(kTypeOffset));
    check_sizes(head.load<uint64_t>(kSequencesOffset), head.load<uint64_t>(kBoundariesOffset));
  }

  TokenType type() const { return type_; }
  int64_t documents() const { return boundaries_ - 1; }

  /// Returns the index of the first token after the document.
  StoredIndex document_end(int64_t document) {
    const int64_t sequence = boundary(document + 1);
    return {sequence == sequences_ ? tokens_ : pointer(sequence) / token_type_bytes(type_)};
  }

  /// Checks lengths, pointers and boundaries against each other and the size of PREFIX.bin.
  void check(const ReadFile& bin) {
    const int64_t token_bytes = token_type_bytes(type_);
    const int64_t bin_bytes = bin.size();
    int64_t begin = 0;  // never above bin_bytes
    for (int64_t i = 0; i < sequences_; ++i) {
      const int64_t length = lengths_.load<int32_t>(kIndexHeaderBytes + 4 * i);
      if (length < 0) fail("sequence {} has a length of {}", i, length);
      if (pointer(i) != begin) {
        fail(
            "sequence {} begins at byte {} of the .bin file, expected {}, where the "
            "one before it ends",
            i, pointer(i), begin);
      }
      if (length * token_bytes > bin_bytes - begin) {
        fail("sequence {} reaches to byte {} of {}, which has {} bytes", i,
             begin + length * token_bytes, bin.path().string(), bin_bytes);
      }
      begin += length * token_bytes;
    }
    if (begin != bin_bytes) {
      fail(
          "its sequences fill {} bytes, but {} has {}; the two files do not belong "
          "together",
          begin, bin.path().string(), bin_bytes);
    }
    tokens_ = bin_bytes / token_bytes;
    check_boundaries();
  }

 private:
  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> problem, Args&&... args) const {
    throw Error("{} cannot be used: {}", file_.path().string(),
                fmt::format(problem, std::forward<Args>(args)...));
  }

  // After the header: 4 bytes of length and 8 of offset per sequence, then 8 per boundary.
  int64_t pointer(int64_t sequence) {
    return pointers_.load<int64_t>(kIndexHeaderBytes + 4 * sequences_ + 8 * sequence);
  }
  int64_t boundary(int64_t index) {
    return document_begins_.load<int64_t>(kIndexHeaderBytes + 12 * sequences_ + 8 * index);
  }

  void read_type(uint8_t code) {
    if (code == 4) {
      type_ = TokenType::i32;
    } else if (code == 5) {
      type_ = TokenType::i64;
    } else if (code != 8) {  // uint16, which type_ is already
      const bool is_known = code > 0 && code < std::size(kIndexTypeNames);
      fail("its element type has the code {}{}; expected 4 (int32), 5 (int64) or 8 (uint16)", code,
           is_known ? fmt::format(" ({})", kIndexTypeNames[code]) : "");
    }
  }

  void check_sizes(uint64_t sequences, uint64_t boundaries) {
    const auto bytes = static_cast<uint64_t>(file_.size());
    // The bounds of both counts come first. No product below overflows if they hold.
    const bool possible = sequences <= bytes / 12 && boundaries <= bytes / 8;
    const uint64_t expected = possible ? kIndexHeaderBytes + 12 * sequences + 8 * boundaries : 0;
    if (!possible || bytes < expected) {
      fail(
          "it has {} bytes, too few for the {} sequences and {} document boundaries "
          "that its header states; it is cut short or damaged",
          bytes, sequences, boundaries);
    }
    if (bytes == expected + sequences && sequences > 0) {
      fail(
          "it has a mode for each sequence: it belongs to a multimodal dataset, which is not text");
    }
    if (bytes > expected) {
      fail(
          "it has {} bytes more than the {} sequences and {} document boundaries that "
          "its header states take; it is damaged",
          bytes - expected, sequences, boundaries);
    }
    sequences_ = static_cast<int64_t>(sequences);
    boundaries_ = static_cast<int64_t>(boundaries);
  }

  void check_boundaries() {
    if (boundaries_ == 0 || boundary(0) != 0) fail("its first document does not begin at 0");
    for (int64_t i = 1; i < boundaries_; ++i) {
      if (boundary(i) < boundary(i - 1) || boundary(i) > sequences_) {
        fail("document {} ends at sequence {}, expected {} to {}", i - 1, boundary(i),
             boundary(i - 1), sequences_);
      }
    }
    if (const int64_t last = boundary(boundaries_ - 1); last != sequences_) {
      fail("its documents end at sequence {} of {}", last, sequences_);
    }
  }

  ReadFile file_;
  FileWindow lengths_;
  FileWindow pointers_;
  FileWindow document_begins_;
  TokenType type_ = TokenType::u16;
  int64_t sequences_ = 0;
  int64_t boundaries_ = 0;  // of documents
  int64_t tokens_ = 0;
};

/// Adds an end-of-document token after each document that does not end with one.
void add_missing_ends(MegatronIndex& index, StoredTokens& tokens) {
  StoredIndex begin;
  for (int64_t document = 0; document < index.documents(); ++document) {
    const StoredIndex end = index.document_end(document);
    if (end > begin) tokens.ensure_end_of_document(end);
    begin = end;
  }
}

/// Throws Error if one of some evenly spread documents does not end with an end-of-document token.
void require_ends(MegatronIndex& index, StoredTokens& tokens, const TokenIdRange& ids,
                  const fs::path& path) {
  const int64_t checked = std::min(kCheckedDocuments, index.documents());
  for (int64_t i = 0; i < checked; ++i) {
    // In this order of operations no product overflows.
    const int64_t document =
        index.documents() / checked * i + index.documents() % checked * i / checked;
    const StoredIndex begin = document == 0 ? StoredIndex{} : index.document_end(document - 1);
    const StoredIndex end = index.document_end(document);
    const StoredIndex last{end.value - 1};
    if (begin == end || tokens.stored_token(last) == ids.end_of_document) continue;
    throw Error(
        "{}: document {} ends with token {}, not with the end-of-document token {}; set "
        "end_of_document = \"add\" to have it put in, or give the tokenizer that the data was made "
        "with",
        path.string(), document, tokens.stored_token(last), ids.end_of_document);
  }
}

}  // namespace

MegatronPaths megatron_paths(const fs::path& path) {
  std::string prefix = path.string();
  if (prefix.ends_with(".idx") || prefix.ends_with(".bin")) prefix.resize(prefix.size() - 4);
  return {prefix + ".idx", prefix + ".bin"};
}

StoredTokens open_megatron(const fs::path& path, DocumentEnds ends, const TokenIdRange& ids) {
  const auto [index_path, bin_path] = megatron_paths(path);
  MegatronIndex index(index_path);
  const ReadFile bin(bin_path);
  index.check(bin);
  std::vector<TokenFile> files{
      {bin_path, bin.size(), 0, index.type(), bin.size() / token_type_bytes(index.type())}};
  StoredTokens tokens(std::move(files), ids);
  if (ends == DocumentEnds::add) {
    add_missing_ends(index, tokens);
  } else {
    require_ends(index, tokens, ids, index_path);
  }
  return tokens;
}

}  // namespace tessera
