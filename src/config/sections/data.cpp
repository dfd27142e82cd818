#include "config/sections.h"

namespace tessera {

Section data_section() {
  return SectionWriter("data", &RunConfig::data, "what is learned from")
      .key("directory", &DataConfig::directory, TextRule{}, "the folder that `prepare` wrote")
      .key("context", &DataConfig::context, whole(1, 1 << 24), "tokens of one sequence")
      .key("document_mask", &DataConfig::document_mask, FlagRule{},
           "whether attention stays within a document")
      .section();
}

}  // namespace tessera
