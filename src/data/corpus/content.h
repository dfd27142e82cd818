#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/read_file.h"
#include "data/corpus/compression.h"
#include "data/corpus/corpus.h"

namespace tessera {

/// Throws Error unless a file still has the size that it had when it was scanned.
void require_unchanged(const CorpusFile& file, int64_t size);

/// What an input file contains, unpacked where it is compressed, one byte after another.
class Content {
 public:
  /// Begins at a byte of the file; at 0 where it is compressed. Throws Error when it cannot be read
  /// or is no longer the one that was scanned.
  explicit Content(const CorpusFile& file, int64_t begin = 0);

  /// Fills `buffer` and returns how many bytes were left to fill it with: fewer than its size at
  /// the end only. Throws Error as ReadFile and Decompressor do.
  size_t read(std::span<char> buffer);

 private:
  ReadFile file_;  // unless it is compressed
  int64_t at_ = 0;
  std::unique_ptr<Decompressor> unpacked_;  // if it is
};

}  // namespace tessera
