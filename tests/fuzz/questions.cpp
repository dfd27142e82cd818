#include "inference/multiple_choice/questions.h"

#include "fuzz/fuzz.h"

using namespace tessera;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::MemoryFolder folder;
  folder.write("task.jsonl", fuzz::text_of(data, size));
  fuzz::expect_result_or_error([&] {
    for (const Question& question : read_questions(folder.path() / "task.jsonl")) {
      TESSERA_CHECK(question.answer < question.choices.size() &&
                        question.prompts.size() == question.choices.size(),
                    "a question without its answer");
    }
  });
  return 0;
}
