#include "checkpoint/carried_files.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "checkpoint/checkpoint_state.h"

namespace tessera {
namespace {

/// Returns the files of the data's tokenizer from the path where it was found.
std::vector<TokenizerFile> reread_files(const DataTokenizer& tokenizer) {
  constexpr std::string_view kAdvice = "restore it as the data was opened with it, and start again";
  if (is_prepared_folder(tokenizer.origin)) {
    return read_tokenizer_files(tokenizer.origin, tokenizer.files, kAdvice);
  }
  const std::unique_ptr<Tokenizer> loaded = load_tokenizer(tokenizer.origin);
  if (loaded->file_hashes() != tokenizer.files) {
    throw Error("the tokenizer {} changed; {}", tokenizer.origin, kAdvice);
  }
  return loaded->files();
}

}  // namespace

std::vector<CarriedFile> tokenizer_files(const DataTokenizer& tokenizer) {
  std::vector<CarriedFile> files;
  for (TokenizerFile& file : reread_files(tokenizer)) {
    files.push_back({std::move(file.name), std::move(file.content)});
  }
  return files;
}

void add_other_files(const CheckpointReader& reader, std::vector<CarriedFile>& files,
                     const Logger& logger) {
  for (const CheckpointFile& file : reader.manifest().extra_files) {
    const bool carried = std::ranges::find(files, file.name, &CarriedFile::name) != files.end();
    if (carried || file.name == kCheckpointConfigName) continue;
    try {
      files.push_back({file.name, reader.extra_file(file.name)});
    } catch (const DamagedCheckpoint& damaged) {
      logger.warn("{}; it is left out of the checkpoints of this run", damaged.what());
    }
  }
}

void verify_carried_tokenizer(const CheckpointReader& reader) {
  for (const std::string_view name : kTokenizerFileNames) {
    if (path_exists(reader.path() / name)) reader.extra_file(std::string(name));
  }
}

std::unique_ptr<Tokenizer> load_carried_tokenizer(const CheckpointReader& reader) {
  verify_carried_tokenizer(reader);
  return load_tokenizer(reader.path());
}

}  // namespace tessera
