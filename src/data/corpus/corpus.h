#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "data/corpus/compression.h"

namespace tessera {

/// The format of the text in an input file.
enum class Format {
  text,   ///< one file is one document
  jsonl,  ///< one line is a JSON object; one of its fields is a document
};

/// One input file, as it was when the corpus was scanned.
struct CorpusFile {
  fs::path path;
  int64_t size = 0;      // bytes
  int64_t modified = 0;  // nanoseconds, by the file system's clock
  Format format = Format::text;
  Compression compression = Compression::none;
  bool operator==(const CorpusFile&) const = default;
};

/// Throws Error unless the file still has the size that it had when it was scanned.
void require_unchanged(const CorpusFile& file, int64_t size);

/// The input files, in the order of their documents.
struct Corpus {
  std::vector<CorpusFile> files;
  int64_t bytes = 0;  // of the files as they are, compressed or not
  int64_t empty_files = 0;
};

/// Finds the files that `inputs` name: files, folders and globs. The files keep the order of
/// `inputs` and are sorted within each input. Names that end in .jsonl, .ndjson or .json are JSONL;
/// all others are plain text. The suffix may be in upper or lower case and may be followed by .gz,
/// .zst or .zstd. A file that is named twice is read once. Files inside `excluded` (the output
/// folder) are left out. Throws Error when an input names nothing, when all files are empty, and as
/// detect_compression() does.
Corpus scan_inputs(const std::vector<std::string>& inputs, const fs::path& excluded,
                   const Logger& logger);

/// A part of a file. `begin` and `end` are the byte offsets at which the file should be cut.
/// Readers move both by the same rule to an offset at which the file can be cut, such as the start
/// of the next line (see read_slice() and ItemTokenizer). So consecutive slices have neither gaps
/// nor overlaps. A compressed file is one slice, because it can only be read from its start.
struct Slice {
  int64_t file = 0;  // index in Corpus::files
  int64_t begin = 0;
  int64_t end = 0;
  bool operator==(const Slice&) const = default;
};

/// The slices that one thread tokenizes at a time.
using WorkItem = std::vector<Slice>;

/// Cuts the corpus, in order, into items of about `item_bytes`. Large files are split, except for
/// compressed ones. Small files are joined. The last item may be small. Reads no file.
std::vector<WorkItem> plan_items(const Corpus& corpus, int64_t item_bytes);

}  // namespace tessera
