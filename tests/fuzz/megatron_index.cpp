#include <cstring>
#include <vector>

#include "base/file.h"
#include "data/sources/megatron.h"
#include "fuzz/fuzz.h"

using namespace tessera;

namespace {

/// A folder of this process with the two files, in memory where the system has such a place.
const fs::path& prefix() {
  static const fs::path path = [] {
    const fs::path root = fs::exists("/dev/shm") ? "/dev/shm" : fs::temp_directory_path();
    return root / ("tessera-fuzz-" + std::to_string(::getpid()));
  }();
  return path;
}

void write(const char* suffix, std::string_view bytes) {
  std::FILE* file = std::fopen((prefix().string() + suffix).c_str(), "wb");
  TESSERA_CHECK(file != nullptr, "the input cannot be written");
  std::fwrite(bytes.data(), 1, bytes.size(), file);
  std::fclose(file);
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // The first byte is the size of PREFIX.bin in pairs of bytes, the rest PREFIX.idx.
  if (size == 0) return 0;
  write(".bin", std::string(size_t{2} * data[0], '\1'));
  write(".idx", fuzz::text_of(data + 1, size - 1));
  for (const DocumentEnds ends : {DocumentEnds::add, DocumentEnds::present}) {
    fuzz::expect_result_or_error([&] {
      const StoredTokens tokens =
          open_megatron(prefix(), ends, {.vocabulary_size = 300, .end_of_document = 257});
      std::vector<int32_t> all(static_cast<size_t>(tokens.tokens()));
      tokens.read(0, all);
    });
  }
  std::remove((prefix().string() + ".bin").c_str());
  std::remove((prefix().string() + ".idx").c_str());
  return 0;
}
