#include "config/effects.h"
#include "config/sections.h"

namespace tessera {

ConfigSection shard_section() {
  using namespace effects;
  return SectionWriter("shard", &RunConfig::shard,
                       "how the state is shared and what travels for it")
      .key(
          "optimizer", &ShardConfig::optimizer, word_rule<ShardOver>(), {several_ranks, "none"},
          "which ranks share out the optimizer's state, the fp32 masters and the moments: none, or "
          "all that hold the same weights, along the data axis (ZeRO-1); the numbers stay the same")
      .key("gradients_wire", &ShardConfig::gradients_wire, word_rule<WireFormat>({"int4"}),
           {several_ranks, "fp32"},
           "how gradients travel to their sums: as they are, or rounded, which halves the bytes; "
           "each sum is taken in fp32, and then rounded to travel on")
      .section();
}

}  // namespace tessera
