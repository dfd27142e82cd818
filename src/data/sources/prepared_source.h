#pragma once

#include <memory>

#include "data/sources/instance_source.h"

namespace tessera {

/// Opens a folder written by `prepare`. The instances of a split come in the order of its shards,
/// which is random already and the same in every epoch. Throws Error as SplitReader does.
std::unique_ptr<InstanceSource> open_prepared_source(const fs::path& folder, int64_t context);

}  // namespace tessera
