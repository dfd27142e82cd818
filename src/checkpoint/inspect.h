#pragma once

#include <string>

#include "base/file.h"

namespace tessera {

/// A checkpoint's manifest as a table for a terminal: step, state, files, every tensor with its
/// element type, shape, bytes and hash, totals of each group. The tensors themselves are not read
/// (see verify_checkpoint). Throws Error when the manifest is missing or damaged.
std::string inspect_checkpoint(const fs::path& checkpoint);

/// The same as one JSON object: {"path", "step", "created_by", "state", "files": [{"name", "bytes",
/// "xxh3" or, of a .safetensors file, "header_xxh3"}], "groups": [{"name", "tensors", "elements",
/// "bytes"}], "tensors": [{"group", "name", "file", "dtype", "shape", "elements", "bytes",
/// "xxh3"}]}.
std::string inspect_checkpoint_json(const fs::path& checkpoint);

}  // namespace tessera
