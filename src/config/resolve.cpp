#include "config/resolve.h"

#include <optional>
#include <utility>

#include "base/error.h"
#include "base/threads.h"
#include "data/sources/open_data.h"

namespace tessera {

RunConfig resolve_data(RunConfig config) {
  const bool mixed = !config.data.sources.empty();
  if (mixed) config.data.sources = named_sources(config.data);
  int64_t& vocabulary_size = config.model.vocabulary_size;
  const std::optional<DataTokenizer> tokenizer = find_tokenizer(config.data);
  if (!tokenizer) {
    if (vocabulary_size > 0) return config;
    throw Error(
        "model.vocabulary_size is not set and {} no prepared data to take it from; run "
        "`tessera prepare`, or set data.tokenizer or model.vocabulary_size",
        mixed ? "the sources of [[data.sources]] hold"
              : fmt::format("data.directory ({}) holds", config.data.directory));
  }
  const int64_t tokens = tokenizer->ids.vocabulary_size;
  if (vocabulary_size == 0) vocabulary_size = tokens;
  if (vocabulary_size < tokens) {
    throw Error(
        "model.vocabulary_size is {}, but the tokenizer of {} has {} tokens; leave the key "
        "out or give at least that",
        vocabulary_size, tokenizer->origin, tokens);
  }
  return config;
}

RunConfig resolve(RunConfig config) {
  config.run.threads = threads_or_all(static_cast<int>(config.run.threads), "run.threads");
  return resolve_data(std::move(config));
}

}  // namespace tessera
