#include "base/folder_handle.h"

#include <fcntl.h>
#include <unistd.h>

namespace tessera {

FolderHandle::FolderHandle(const fs::path& path)
    : descriptor_(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {}

FolderHandle::~FolderHandle() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace tessera
