#pragma once

#include <cstdint>
#include <string>

namespace tessera {

/// The [data] section.
struct DataConfig {
  std::string directory = "data/demo";  ///< what `prepare` wrote
  int64_t context = 256;                ///< tokens of one sequence
  bool document_mask = true;            ///< attention stays within a document
};

}  // namespace tessera
