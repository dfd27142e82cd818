#include "config/sections.h"

namespace tessera {

ConfigSection shard_section() {
  return SectionWriter("shard", &RunConfig::shard,
                       "how the state is shared and what travels for it")
      .key("gradients_wire", &ShardSection::gradients_wire, word_rule<WireFormat>({"int4"}),
           "how gradients travel to their sums: as they are, or rounded, which halves the bytes; "
           "each sum is taken in fp32, and then rounded to travel on")
      .section();
}

}  // namespace tessera
