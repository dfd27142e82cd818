#include "fuzz/fuzz.h"
#include "hardware/hardware_file.h"
#include "hardware/hardware_report.h"

using namespace tessera;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::expect_result_or_error([&] {
    const Hardware hardware = parse_hardware(fuzz::text_of(data, size), "fuzz.json");
    // What was accepted reads back as itself.
    const std::string text = hardware_json(hardware);
    TESSERA_CHECK(hardware_json(parse_hardware(text, "written.json")) == text,
                  "a written hardware file reads back otherwise");
    for (const char letter : describe(hardware.processor)) {
      TESSERA_CHECK(static_cast<unsigned char>(letter) >= 0x20 && letter != 0x7f,
                    "a control character in a report");
    }
    memory_text(hardware);
    gemm_text(hardware, {});
    fuzz::expect_result_or_error([&] { hardware.gemm_peak(DType::bf16); });
    fuzz::expect_result_or_error([&] { hardware.memory_bandwidth(); });
  });
  return 0;
}
