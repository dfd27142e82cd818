#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/words.h"

namespace tessera {

/// What the path of a source names.
enum class SourceFormat {
  automatic,  ///< whatever is found there
  prepared,   ///< a folder that `tessera prepare` wrote
  megatron,   ///< the prefix of a Megatron-LM indexed dataset
  tokens,     ///< token files, by name or glob
};
template <>
inline constexpr std::array<std::string_view, 4> kWords<SourceFormat>{"auto", "prepared",
                                                                      "megatron", "tokens"};

/// How a source's documents end.
enum class DocumentEnds {
  /// A document whose last token is not an end-of-document token gets one. Opening the source reads
  /// the last token of every document.
  add,
  /// Every document is assumed to end with one, and the stream is the files as they are. Opening
  /// the source checks some documents; one without an end-of-document token is an error.
  present,
};
template <>
inline constexpr std::array<std::string_view, 2> kWords<DocumentEnds>{"add", "present"};

/// The type of a token id in a file.
enum class TokenType { u16, u32, i32, i64 };
template <>
inline constexpr std::array<std::string_view, 4> kWords<TokenType>{"uint16", "uint32", "int32",
                                                                   "int64"};

/// What says the type of the ids in token files: their .npy headers, or the configuration, which
/// names a TokenType.
enum class TokenFileType { header, u16, u32, i32, i64 };
template <>
inline constexpr std::array<std::string_view, 5> kWords<TokenFileType>{"header", "uint16", "uint32",
                                                                       "int32", "int64"};

/// One [[data.sources]]: data that a mix takes a share of its instances from.
struct SourceConfig {
  std::string name;   ///< in reports and checkpoints; empty: by the path
  std::string path;   ///< a prepared folder, a Megatron prefix, a file or a glob
  double weight = 1;  ///< its share of the instances is this over the sum of all
  SourceFormat format = SourceFormat::automatic;
  TokenFileType dtype = TokenFileType::header;  ///< of token files
  DocumentEnds end_of_document = DocumentEnds::add;
  double held_out = 0.01;  ///< fraction of the instances; prepared data has its own
  uint64_t seed = 0;       ///< of the permutation; prepared data has its own
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
