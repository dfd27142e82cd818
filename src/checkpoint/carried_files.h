#pragma once

#include <memory>
#include <vector>

#include "base/log.h"
#include "checkpoint/checkpoint_reader.h"
#include "data/sources/open_data.h"
#include "data/tokenizer.h"

namespace tessera {

/// Returns the files of a tokenizer. The checkpoints of a run carry them, so that they can be used
/// without the data. Throws Error when the tokenizer has changed since the data was opened.
std::vector<CarriedFile> tokenizer_files(const DataTokenizer& tokenizer);

/// Adds to `files` the extra files of a checkpoint whose names are not there yet, but for
/// config.toml. A damaged file is left out with a warning: training must not stop for it.
void add_other_files(const CheckpointReader& reader, std::vector<CarriedFile>& files,
                     const Logger& logger);

/// Compares the tokenizer's files in a checkpoint's folder with the hashes in its manifest. Throws
/// Error naming the first file that is damaged or that the manifest does not list.
void verify_carried_tokenizer(const CheckpointReader& reader);

/// Returns the tokenizer that a checkpoint carries, after verifying its files. Throws Error also
/// when there is no tokenizer, or one that Tessera cannot read.
std::unique_ptr<Tokenizer> load_carried_tokenizer(const CheckpointReader& reader);

}  // namespace tessera
