#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/words.h"

namespace tessera {

/// The kind of data that the path of a source names.
enum class SourceFormat {
  automatic,  ///< decided by what is found there
  prepared,   ///< a folder that `tessera prepare` wrote
  megatron,   ///< the prefix of a Megatron-LM indexed dataset
  tokens,     ///< token files, by name or glob
};
template <>
inline constexpr std::array<std::string_view, 4> kWordsOf<SourceFormat>{"auto", "prepared",
                                                                        "megatron", "tokens"};

/// The handling of the ends of a source's documents.
enum class DocumentEnds {
  /// A document that does not end with an end-of-document token gets one. Opening a Megatron
  /// dataset reads each document's last token. In token files, only the end of a file ends one.
  add,
  /// Every document must end with an end-of-document token, and the stream is the files as they
  /// are. Opening a Megatron dataset checks some documents and throws Error if one lacks the token.
  /// Token files are not checked.
  present,
};
template <>
inline constexpr std::array<std::string_view, 2> kWordsOf<DocumentEnds>{"add", "present"};

/// The type of a token id in a file.
enum class TokenType { u16, u32, i32, i64 };
template <>
inline constexpr std::array<std::string_view, 4> kWordsOf<TokenType>{"uint16", "uint32", "int32",
                                                                     "int64"};

/// The type of the ids in token files: as their .npy headers state it, or as the configuration
/// states it, with a word of TokenType.
enum class TokenFileType { header, u16, u32, i32, i64 };
template <>
inline constexpr std::array<std::string_view, 5> kWordsOf<TokenFileType>{
    "header", "uint16", "uint32", "int32", "int64"};

/// One [[data.sources]]: data from which a mix draws a share of its instances.
struct SourceConfig {
  std::string name;   ///< the name in reports and checkpoints; empty: see source_name()
  std::string path;   ///< a prepared folder, a Megatron prefix, a file or a glob
  double weight = 1;  ///< its share of the instances is weight / sum of all weights
  SourceFormat format = SourceFormat::automatic;
  TokenFileType dtype = TokenFileType::header;  ///< the type of ids in token files
  DocumentEnds end_of_document = DocumentEnds::add;
  double held_out = 0.01;  ///< fraction of the instances; prepared data has its own
  uint64_t seed = 0;       ///< the seed of the permutation; prepared data has its own
};

/// The [data] section.
struct DataConfig {
  std::string directory = "data/demo";  ///< what `prepare` wrote; empty if `sources` are given
  int64_t context = 256;                ///< tokens per sequence
  bool document_mask = true;            ///< attention stays within a document
  std::string tokenizer;  ///< see load_tokenizer(); empty: the prepared data's tokenizer
  std::vector<SourceConfig> sources;
};

}  // namespace tessera
