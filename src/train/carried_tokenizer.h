#pragma once

#include <memory>

#include "checkpoint/checkpoint_reader.h"
#include "data/tokenizer.h"

namespace tessera {

/// Compares the tokenizer's files in a checkpoint's folder with the hashes of its manifest. Throws
/// Error naming the first that is damaged, or that is there without being the checkpoint's.
void verify_carried_tokenizer(const CheckpointReader& reader);

/// The tokenizer that a checkpoint carries, its files verified. Throws Error also when there is
/// none, or one that Tessera cannot read.
std::unique_ptr<Tokenizer> load_carried_tokenizer(const CheckpointReader& reader);

}  // namespace tessera
