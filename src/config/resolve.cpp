#include "config/resolve.h"

#include "base/error.h"
#include "base/file.h"
#include "base/threads.h"
#include "data/shards/manifest.h"

namespace tessera {

RunConfig resolve(RunConfig config) {
  config.run.threads = threads_or_all(static_cast<int>(config.run.threads));
  const fs::path directory = config.data.directory;
  int64_t& size = config.model.vocabulary_size;
  if (!fs::exists(directory / kManifestName)) {
    if (size > 0) return config;
    throw Error(
        "model.vocabulary_size is not set and data.directory ({}) holds no prepared data "
        "to take it from; run `tessera prepare` or set model.vocabulary_size",
        directory.string());
  }
  const Manifest manifest = read_manifest(directory);
  if (size == 0) size = manifest.vocabulary_size;
  if (size < manifest.vocabulary_size) {
    throw Error(
        "model.vocabulary_size is {}, but the tokenizer of {} has {} tokens; leave the key "
        "out or give at least that",
        size, directory.string(), manifest.vocabulary_size);
  }
  return config;
}

}  // namespace tessera
