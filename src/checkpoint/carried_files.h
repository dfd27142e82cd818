#pragma once

#include <memory>
#include <vector>

#include "base/log.h"
#include "checkpoint/checkpoint_reader.h"
#include "data/sources/open_data.h"
#include "data/tokenizer.h"

namespace tessera {

/// The tokenizer of a run's data, for its checkpoints to carry. Throws Error when it is no longer
/// what it was when the data was opened.
std::vector<CarriedFile> tokenizer_files(const DataTokenizer& tokenizer);

/// Adds what a checkpoint carries under other names than those of `files`, but for its
/// configuration. A file that is damaged is warned of and left out: no training is lost for it.
void add_other_files(const CheckpointReader& reader, std::vector<CarriedFile>& files,
                     const Logger& logger);

/// Compares the tokenizer's files in a checkpoint's folder with the hashes of its manifest. Throws
/// Error naming the first that is damaged, or that is there without being the checkpoint's.
void verify_carried_tokenizer(const CheckpointReader& reader);

/// The tokenizer that a checkpoint carries, its files verified. Throws Error also when there is
/// none, or one that Tessera cannot read.
std::unique_ptr<Tokenizer> load_carried_tokenizer(const CheckpointReader& reader);

}  // namespace tessera
