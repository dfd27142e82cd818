#pragma once

#include <string>

#include "base/file.h"

namespace tessera {

/// Returns " (LINK is a link to TARGET, which is not there)" if the path, or a folder in it, is
/// such a link; otherwise an empty text. For errors about the path.
std::string dangling_link_text(const fs::path& path);

/// Returns whether `path`, with links followed, leads to the file or folder behind an open
/// descriptor. It does not if the file or folder was renamed, removed or replaced since it was
/// opened.
bool leads_to(const fs::path& path, int descriptor);

}  // namespace tessera
