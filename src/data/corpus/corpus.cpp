#include "data/corpus/corpus.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "base/error.h"

namespace tessera {
namespace {

Format format_of(const fs::path& path) {
  const std::string extension = lower_case_extension(without_compression_suffix(path));
  const bool jsonl = extension == ".jsonl" || extension == ".ndjson" || extension == ".json";
  return jsonl ? Format::jsonl : Format::text;
}

bool is_inside(const fs::path& path, const fs::path& folder) {
  return !folder.empty() &&
         std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first ==
             folder.end();
}

}  // namespace

void require_unchanged(const CorpusFile& file, int64_t size) {
  if (size == file.size) return;
  throw Error("{} changed while it was read: {} bytes at the start, {} now; run prepare again",
              file.path.string(), file.size, size);
}

Corpus scan_inputs(const std::vector<std::string>& inputs, const fs::path& excluded,
                   const Logger& logger) {
  if (inputs.empty()) throw Error("no input given; name at least one file, folder or glob");
  Corpus corpus;
  std::set<fs::path> seen;
  fs::path folder = excluded.empty() ? fs::path() : canonical_path(excluded);
  if (!folder.has_filename()) folder = folder.parent_path();  // "out/" means "out"
  for (const std::string& input : inputs) {
    for (const fs::path& path : find_inputs(input)) {
      const fs::path canonical = canonical_path(path);
      if (is_inside(canonical, folder)) continue;
      if (!seen.insert(canonical).second) {
        logger.warn("{} is named twice by the inputs; it is taken once", path.string());
        continue;
      }
      std::error_code code;
      CorpusFile file{path, static_cast<int64_t>(fs::file_size(path, code)), 0, format_of(path)};
      const fs::file_time_type modified = code ? fs::file_time_type() : last_write_time(path, code);
      if (code) throw Error("cannot read {}: {}", path.string(), code.message());
      file.modified =
          std::chrono::duration_cast<std::chrono::nanoseconds>(modified.time_since_epoch()).count();
      file.compression = detect_compression(path);
      corpus.bytes += file.size;
      if (file.size == 0) {
        ++corpus.empty_files;
        logger.warn("{} is empty", path.string());
      }
      corpus.files.push_back(std::move(file));
    }
  }
  if (corpus.bytes == 0) {
    throw Error("the inputs hold no text: {} files, all empty; give files with text",
                corpus.files.size());
  }
  return corpus;
}

std::vector<WorkItem> plan_items(const Corpus& corpus, int64_t item_bytes) {
  TESSERA_CHECK(item_bytes > 0, "work items of {} bytes", item_bytes);
  std::vector<WorkItem> items;
  WorkItem item;
  int64_t bytes = 0;
  for (size_t file = 0; file < corpus.files.size(); ++file) {
    const int64_t size = corpus.files[file].size;
    const bool is_compressed = corpus.files[file].compression != Compression::none;
    const int64_t slice_bytes = is_compressed ? size : item_bytes;
    for (int64_t begin = 0; begin < size; begin += slice_bytes) {
      const int64_t end = std::min(begin + slice_bytes, size);
      item.push_back({static_cast<int64_t>(file), begin, end});
      bytes += end - begin;
      if (bytes >= item_bytes) {
        items.push_back(std::exchange(item, {}));
        bytes = 0;
      }
    }
  }
  if (!item.empty()) items.push_back(std::move(item));
  return items;
}

}  // namespace tessera
