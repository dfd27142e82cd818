#include "base/links.h"

#include <fmt/format.h>
#include <sys/stat.h>

namespace tessera {

std::string dangling_link_text(const fs::path& path) {
  fs::path part;
  for (const fs::path& name : path) {
    part /= name;
    std::error_code code;
    if (!fs::is_symlink(part, code) || fs::exists(part, code) || code) continue;
    return fmt::format(" ({} is a link to {}, which is not there)", part.string(),
                       fs::read_symlink(part, code).string());
  }
  return "";
}

bool leads_to(const fs::path& path, int descriptor) {
  struct stat opened {};
  struct stat found {};
  return ::fstat(descriptor, &opened) == 0 && ::stat(path.c_str(), &found) == 0 &&
         opened.st_dev == found.st_dev && opened.st_ino == found.st_ino;
}

}  // namespace tessera
