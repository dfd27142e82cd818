#include "config/sections.h"

namespace tessera {

ConfigSection shard_section() {
  return SectionWriter("shard", &RunConfig::shard,
                       "how the state is shared and what travels for it")
      .key("gradients_wire", &ShardSection::gradients_wire, word_rule<WireFormat>({"int4"}),
           "how gradients travel to their sums: as they are, or rounded, which halves the bytes; "
           "the sums are fp32")
      .section();
}

}  // namespace tessera
