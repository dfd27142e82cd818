#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/read_file.h"
#include "data/corpus/compression.h"
#include "data/corpus/corpus.h"

namespace tessera {

/// Throws Error unless the file still has the size that it had when it was scanned.
void require_unchanged(const CorpusFile& file, int64_t size);

/// A reader of the content of an input file from start to end. A compressed file is unpacked.
class Content {
 public:
  /// Starts at byte `begin` of the file, which must be 0 if the file is compressed. Throws Error
  /// when the file cannot be read or has changed since it was scanned.
  explicit Content(const CorpusFile& file, int64_t begin = 0);

  /// Fills `buffer` and returns the number of bytes read. It is below the buffer's size only at the
  /// end. Throws Error as ReadFile and Decompressor do.
  size_t read(std::span<char> buffer);

 private:
  ReadFile file_;  // open if the file is not compressed
  int64_t at_ = 0;
  std::unique_ptr<Decompressor> unpacked_;  // set if the file is compressed
};

}  // namespace tessera
