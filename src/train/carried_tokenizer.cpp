#include "train/carried_tokenizer.h"

namespace tessera {

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
