#include "config/load_config.h"
#include "fuzz/fuzz.h"

using namespace tessera;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::expect_result_or_error([&] {
    const RunConfig config = parse_config(fuzz::text_of(data, size), "fuzz.toml");
    // What was accepted reads back as itself.
    const std::string text = to_toml(config);
    TESSERA_CHECK(to_toml(parse_config(text, "written.toml")) == text,
                  "a written configuration reads back otherwise");
  });
  return 0;
}
