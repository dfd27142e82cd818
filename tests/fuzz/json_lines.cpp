#include "base/utf8.h"
#include "data/corpus/json_line.h"
#include "fuzz/fuzz.h"

using namespace tessera;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // The first byte chooses the field: a plain one, or one with dots.
  if (size == 0) return 0;
  const bool dotted = (data[0] & 1) != 0;
  std::string buffer;
  int64_t replaced = 0;
  const std::string_view line = repair_utf8(fuzz::text_of(data + 1, size - 1), buffer, replaced);
  JsonLineParser parser(dotted ? "content.text" : "text");
  std::string_view document;
  const std::string reason = parser.parse(line, document, replaced);
  if (reason.empty()) {
    std::string again;
    int64_t broken = 0;
    repair_utf8(document, again, broken);
    TESSERA_CHECK(broken == 0, "a document is not UTF-8");
  }
  return 0;
}
