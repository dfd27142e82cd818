#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "data/corpus/compression.h"

namespace tessera {

enum class Format {
  text,   ///< one file is one document
  jsonl,  ///< one line is one JSON object, one of whose fields is a document
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

/// The input files in the order in which their documents follow each other.
struct Corpus {
  std::vector<CorpusFile> files;
  int64_t bytes = 0;
  int64_t empty_files = 0;
};

/// Finds the files that `inputs` (files, folders, globs) name, in that order and sorted within each
/// input. Names that end in .jsonl, .ndjson or .json are JSONL, all others plain text, in either
/// case and before a .gz or .zst. A file that is named twice is taken once, and what lies in
/// `excluded` (the output folder) is left out. Throws Error when an input names nothing, when all
/// files are empty, and as detect_compression() does.
Corpus scan_inputs(const std::vector<std::string>& inputs, const fs::path& excluded,
                   const Logger& logger);

/// A part of a file, in bytes. `begin` and `end` are where a cut is wanted; read_slice() moves both
/// to the next line start, so that slices that follow each other share out the lines of a file. A
/// compressed file, which can only be read from its start, is one slice.
struct Slice {
  int64_t file = 0;  // index in Corpus::files
  int64_t begin = 0;
  int64_t end = 0;

  bool operator==(const Slice&) const = default;
};

/// What one thread tokenizes at a time.
using WorkItem = std::vector<Slice>;

/// Cuts the corpus, in order, into items of about `item_bytes`: large files are split, but for
/// compressed ones, small ones joined. It reads nothing.
std::vector<WorkItem> plan_items(const Corpus& corpus, int64_t item_bytes);

}  // namespace tessera
