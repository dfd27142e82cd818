#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "data/data_config.h"
#include "data/sources/instance_source.h"
#include "data/sources/stored_tokens.h"
#include "data/tokenizer.h"

namespace tessera {

/// What all sources of a run agree on.
struct DataTokenizer {
  std::string fingerprint;
  TokenRange range;
  std::string origin;  ///< what load_tokenizer() takes: a prepared folder, a file, "bytes"
  std::vector<TokenizerFileHash> files;  ///< in which it is kept (see Tokenizer::files())
};

/// One source of a run's data.
struct DataSource {
  std::string name;
  double weight = 1;  ///< relative to the others'
  std::shared_ptr<const InstanceSource> instances;
};

/// What a run learns from.
struct TrainingData {
  DataTokenizer tokenizer;
  std::vector<DataSource> sources;  ///< at least one; their names differ
};

/// The name of a source: its own, or where it has none that of its path's last part without glob
/// letters and without the suffix of a token file.
std::string source_name(const SourceConfig& source);

/// The sources that a configuration names, each with its name: data.directory as one, or
/// [[data.sources]]. Throws Error when two have the same name or a name is not of letters, digits
/// and
/// "_.-", or of digits alone.
std::vector<SourceConfig> named_sources(const DataConfig& config);

/// The tokenizer of data.tokenizer, otherwise that of the first prepared source; nothing when
/// neither is there. Throws Error when one of them is damaged.
std::optional<DataTokenizer> find_tokenizer(const DataConfig& config);

/// Opens all sources of a configuration. Throws Error as they do, when they disagree on the
/// tokenizer or none names one, and when a key is set that a source's format does not take.
TrainingData open_data(const DataConfig& config);

/// Opens data to evaluate on, with the tokenizer that the model has: the held-out part of a
/// prepared folder, or the whole of another source as its held-out part. The context is `context`,
/// or that of the prepared folder where it is shorter.
TrainingData open_held_out_data(const SourceConfig& source, int64_t context,
                                const std::string& tokenizer);

/// The longest context, at most `wanted`, that every source can have: prepared data can have no
/// longer one than it was prepared with.
int64_t longest_context(const std::vector<SourceConfig>& sources, int64_t wanted);

}  // namespace tessera
