#include <vector>

#include "data/sources/token_files.h"
#include "fuzz/fuzz.h"

using namespace tessera;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // The first byte is the size of PREFIX.bin in pairs of bytes, the rest PREFIX.idx.
  if (size == 0) return 0;
  const fuzz::MemoryFolder folder;
  folder.write("data.bin", std::string(size_t{2} * data[0], '\1'));
  folder.write("data.idx", fuzz::text_of(data + 1, size - 1));
  for (const DocumentEnds ends : {DocumentEnds::add, DocumentEnds::present}) {
    fuzz::expect_result_or_error([&] {
      const StoredTokens tokens = open_megatron(folder.path() / "data", ends,
                                                {.vocabulary_size = 300, .end_of_document = 257});
      std::vector<int32_t> all(static_cast<size_t>(tokens.tokens()));
      tokens.read(StreamIndex{0}, all);
    });
  }
  return 0;
}
