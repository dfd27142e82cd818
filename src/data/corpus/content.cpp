#include "data/corpus/content.h"

#include <algorithm>

#include "base/error.h"

namespace tessera {

void require_unchanged(const CorpusFile& file, int64_t size) {
  if (size == file.size) return;
  throw Error("{} changed while it was read: {} bytes at the start, {} now; run prepare again",
              file.path.string(), file.size, size);
}

Content::Content(const CorpusFile& file, int64_t begin) : at_(begin) {
  if (file.compression == Compression::none) {
    file_ = ReadFile(file.path);
    require_unchanged(file, file_.size());
    return;
  }
  TESSERA_CHECK(begin == 0, "byte {} of the compressed file {}", begin, file.path.string());
  unpacked_ = std::make_unique<Decompressor>(file.path, file.compression);
  require_unchanged(file, unpacked_->compressed_size());
}

size_t Content::read(std::span<char> buffer) {
  if (unpacked_) return unpacked_->read(buffer);
  buffer = buffer.first(std::min(buffer.size(), static_cast<size_t>(file_.size() - at_)));
  file_.read_at(at_, std::as_writable_bytes(buffer));
  at_ += static_cast<int64_t>(buffer.size());
  return buffer.size();
}

}  // namespace tessera
