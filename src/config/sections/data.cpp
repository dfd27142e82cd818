#include "config/effects.h"
#include "config/sections.h"
#include "data/sources/open_data.h"

namespace tessera {
namespace {

void source_keys(KeyWriter<SourceConfig>& writer) {
  using namespace effects;
  writer
      .key("name", &SourceConfig::name, TextRule{.may_be_empty = true}, {always},
           "the name in reports and checkpoints; empty: the last part of the path")
      .key("path", &SourceConfig::path, TextRule{.may_be_empty = true}, {always},
           "a prepared folder, PREFIX of a Megatron PREFIX.idx and PREFIX.bin, or token files as "
           "OLMo has them, by name or glob")
      .key("weight", &SourceConfig::weight, between(kMinSourceWeight, kMaxNumber),
           {several_sources, SourceConfig().weight},
           "the source's share of the instances is its weight over the sum of all weights")
      .key("format", &SourceConfig::format, word_rule<SourceFormat>(), {always},
           "what the path names; \"auto\": what is found there")
      .key("dtype", &SourceConfig::dtype, word_rule<TokenFileType>(), {token_files},
           "element type of token files; \"header\": as their .npy headers say")
      .key("end_of_document", &SourceConfig::end_of_document, word_rule<DocumentEnds>(),
           {token_files},
           "whether documents and files that do not end with the end-of-document token get one, or "
           "all are known to end with it")
      .key("held_out", &SourceConfig::held_out, NumberRule{.minimum = 0, .maximum = 1},
           {token_files},
           "fraction of the instances that only evaluation sees; prepared data has its own")
      .key("seed", &SourceConfig::seed, at_least(0), {token_files},
           "the seed of the permutation of the instances; prepared data has its own");
}

}  // namespace

ConfigSection data_section() {
  using namespace effects;
  return SectionWriter("data", &RunConfig::data, "the data to learn from")
      .list("sources", &DataConfig::sources, source_keys, source_name,
            "a weighted mix of data, instead of data.directory")
      .key("directory", &DataConfig::directory, TextRule{.may_be_empty = true}, {always},
           "the folder that `prepare` wrote; empty where [[data.sources]] are given")
      .key("context", &DataConfig::context, whole(2, kMaxContext),
           {lacking_in_a_phase<&PhaseConfig::context>},
           "tokens of one sequence; each but the last predicts the next")
      .key("document_mask", &DataConfig::document_mask, FlagRule{}, {always},
           "whether attention stays within a document")
      .key("tokenizer", &DataConfig::tokenizer, TextRule{.may_be_empty = true}, {always},
           "the tokenizer that token files were made with; empty: that of the prepared data")
      .section();
}

}  // namespace tessera
