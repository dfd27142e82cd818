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

/// The tokenizer that all sources of a run share.
struct DataTokenizer {
  std::string fingerprint;
  TokenIdRange ids;
  std::string origin;  ///< the path for load_tokenizer(): a prepared folder, a file, "bytes"
  std::vector<TokenizerFileHash> files;  ///< the tokenizer's files (see Tokenizer::files())
};

/// One source of a run's data.
struct DataSource {
  std::string name;
  double weight = 1;  ///< relative to the other sources' weights
  std::shared_ptr<const InstanceSource> instances;
};

/// The data that a run trains or evaluates on.
struct TrainingData {
  DataTokenizer tokenizer;
  std::vector<DataSource> sources;  ///< at least one; their names differ
};

/// Returns the name of a source: its own, or one taken from its path. That is the path's last part
/// without glob characters, and without the suffix of a token file.
std::string source_name(const SourceConfig& source);

/// Returns the sources that a configuration names, each with its name: data.directory as the only
/// one, or [[data.sources]]. Throws Error when a source has no path, when two have the same name,
/// and when a name has characters other than letters, digits and "_.-" or consists of digits alone.
std::vector<SourceConfig> named_sources(const DataConfig& config);

/// Returns the tokenizer of data.tokenizer, otherwise that of the first prepared source, or nothing
/// if there is neither. Throws Error when the tokenizer or that source's manifest is damaged.
std::optional<DataTokenizer> find_tokenizer(const DataConfig& config);

/// Returns the tokenizer that find_tokenizer() finds. Throws Error when there is none.
DataTokenizer require_tokenizer(const DataConfig& config);

/// Opens all sources of a configuration. Throws Error as the sources do, when sources use different
/// tokenizers or none names one, and when a key is set that a source's format does not use.
TrainingData open_data(const DataConfig& config);
/// Opens all sources of a configuration in the same way, with a tokenizer that is known already.
TrainingData open_data(const DataConfig& config, const DataTokenizer& tokenizer);

/// Opens data to evaluate a model on it. `tokenizer` is the path of the model's tokenizer, for
/// load_tokenizer(). A prepared folder has its held-out split; any other source is held out as a
/// whole. The context is `context`, or the prepared folder's if that is shorter.
TrainingData open_held_out_data(const SourceConfig& source, int64_t context,
                                const std::string& tokenizer);

/// Returns the longest context, at most `wanted`, that every source supports. Prepared data
/// supports no longer context than it was prepared with.
int64_t longest_context(const std::vector<SourceConfig>& sources, int64_t wanted);

}  // namespace tessera
