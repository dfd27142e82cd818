#include "data/corpus/corpus.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace tessera {
namespace {

using namespace std::string_view_literals;

Format format_of(const fs::path& path) {
  const std::string extension = path.extension().string();
  const bool jsonl = extension == ".jsonl" || extension == ".ndjson" || extension == ".json";
  return jsonl ? Format::jsonl : Format::text;
}

/// Tokenizing compressed bytes as if they were text would succeed and be useless.
void refuse_compressed(const fs::path& path) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kMagics = {{
      {"\x1F\x8B\x08"sv, "gzip"},
      {"\x28\xB5\x2F\xFD"sv, "zstd"},
      {"\xFD\x37zXZ\0"sv, "xz"},
      {"BZh"sv, "bzip2"},
      {"PK\x03\x04"sv, "zip"},
      {"PAR1"sv, "parquet"},
  }};
  std::array<char, 10> start{};
  std::ifstream file(path, std::ios::binary);
  file.read(start.data(), start.size());
  const std::string_view found(start.data(), static_cast<size_t>(file.gcount()));
  for (const auto& [magic, name] : kMagics) {
    // A text may begin with "BZh"; bzip2 goes on with a digit and its block magic.
    const bool matches =
        found.starts_with(magic) && (name != "bzip2" || found.substr(4, 6) == "1AY&SY"sv);
    if (matches) {
      throw Error("{} is a {} file; expected plain text or JSONL: convert it first", path.string(),
                  name);
    }
  }
}

bool is_inside(const fs::path& path, const fs::path& folder) {
  return !folder.empty() &&
         std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first ==
             folder.end();
}

}  // namespace

Corpus scan_inputs(const std::vector<std::string>& inputs, const fs::path& excluded,
                   const Logger& logger) {
  if (inputs.empty()) throw Error("no input given; name at least one file, folder or glob");
  Corpus corpus;
  std::set<fs::path> seen;
  fs::path folder = excluded.empty() ? fs::path() : fs::weakly_canonical(excluded);
  if (!folder.has_filename()) folder = folder.parent_path();  // "out/" means "out"
  for (const std::string& input : inputs) {
    for (const fs::path& path : find_inputs(input)) {
      const fs::path canonical = fs::weakly_canonical(path);
      if (is_inside(canonical, folder)) continue;
      if (!seen.insert(canonical).second) {
        logger.warn("{} is named twice by the inputs; it is taken once", path.string());
        continue;
      }
      CorpusFile file{path, static_cast<int64_t>(fs::file_size(path)), 0, format_of(path)};
      file.modified = std::chrono::duration_cast<std::chrono::nanoseconds>(
                          fs::last_write_time(path).time_since_epoch())
                          .count();
      refuse_compressed(path);
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
    for (int64_t begin = 0; begin < size; begin += item_bytes) {
      const int64_t end = std::min(begin + item_bytes, size);
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
