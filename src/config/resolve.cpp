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
  int64_t& size = config.model.vocabulary_size;
  const std::optional<DataTokenizer> tokenizer = find_tokenizer(config.data);
  if (!tokenizer) {
    if (size > 0) return config;
    throw Error(
        "model.vocabulary_size is not set and {} holds no prepared data to take it from; run "
        "`tessera prepare`, or set data.tokenizer or model.vocabulary_size",
        mixed ? "no source of [[data.sources]]"
              : fmt::format("data.directory ({})", config.data.directory));
  }
  const int64_t tokens = tokenizer->range.vocabulary_size;
  if (size == 0) size = tokens;
  if (size < tokens) {
    throw Error(
        "model.vocabulary_size is {}, but the tokenizer of {} has {} tokens; leave the key "
        "out or give at least that",
        size, tokenizer->origin, tokens);
  }
  return config;
}

RunConfig resolve(RunConfig config) {
  config.run.threads = threads_or_all(static_cast<int>(config.run.threads), "run.threads");
  return resolve_data(std::move(config));
}

}  // namespace tessera
