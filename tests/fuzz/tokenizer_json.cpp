#include "data/tokenizer.h"
#include "fuzz/fuzz.h"

using namespace tessera;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::MemoryFolder folder;
  folder.write("tokenizer.json", fuzz::text_of(data, size));
  folder.write("tokenizer_config.json", "{\"eos_token\": \"<|endoftext|>\"}");
  fuzz::expect_result_or_error([&] {
    const auto tokenizer = load_tokenizer(folder.path());
    const auto tokens = tokenizer->encode("It's 12 o'clock: naïve, \t日本 <|endoftext|>!!");
    for (const int32_t token : tokens) {
      TESSERA_CHECK(token >= 0 && token < tokenizer->vocabulary_size(), "token {} of {}", token,
                    tokenizer->vocabulary_size());
    }
    tokenizer->decode(tokens);
  });
  return 0;
}
