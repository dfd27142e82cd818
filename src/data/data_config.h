#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

/// One [[data.sources]]: data that a mix takes a share of its instances from.
struct SourceConfig {
  std::string name;                     ///< in reports and checkpoints; empty: by the path
  std::string path;                     ///< a prepared folder, a Megatron prefix, a file or a glob
  double weight = 1;                    ///< its share of the instances is this over the sum of all
  std::string format = "auto";          ///< "auto", "prepared", "megatron", "tokens"
  std::string dtype = "header";         ///< "header", "uint16", "uint32", "int32", "int64"
  std::string end_of_document = "add";  ///< "add", "present" (see DocumentEnds)
  double held_out = 0.01;               ///< fraction of the instances; prepared data has its own
  uint64_t seed = 0;                    ///< of the permutation; prepared data has its own
};

/// The [data] section.
struct DataConfig {
  std::string directory = "data/demo";  ///< what `prepare` wrote; empty where `sources` are given
  int64_t context = 256;                ///< tokens of one sequence
  bool document_mask = true;            ///< attention stays within a document
  std::string tokenizer;                ///< see load_tokenizer(); empty: that of the prepared data
  std::vector<SourceConfig> sources;
};

}  // namespace tessera
