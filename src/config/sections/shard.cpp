#include <string>

#include "comm/mesh.h"
#include "config/effects.h"
#include "config/sections.h"

namespace tessera {

template <>
struct Stored<ShardPlacement> {
  static ConfigValue to_value(const ShardPlacement& field) {
    return field.ranks > 0 ? ConfigValue(field.ranks) : ConfigValue(field.level);
  }
  static ShardPlacement to_field(const ConfigValue& value) {
    if (const auto* ranks = std::get_if<int64_t>(&value)) return {.ranks = *ranks};
    return {.level = std::get<std::string>(value)};
  }
};

ConfigSection shard_section() {
  using namespace effects;
  const NumberOrTextRule placement{
      .minimum = 1,
      .maximum = kMostRanks,
      .texts = "\"none\", \"all\", the name of a level of parallel.levels such as \"node\""};
  return SectionWriter(
             "shard", &RunConfig::shard,
             "which ranks that hold the same weights share the state, and what travels for it: "
             "each "
             "of a group of them has a piece; weights are cut over no more ranks than gradients, "
             "and "
             "gradients over no more than the optimizer; ZeRO-1: optimizer = \"all\"; ZeRO-2: "
             "gradients too; ZeRO-3 (FSDP): weights too")
      .key("weights", &ShardConfig::weights, placement, {cuts_state<&ShardConfig::weights>, "none"},
           "the ranks that share the weights: none, all, those within a level of the network, or a "
           "number of neighbours")
      .key("gradients", &ShardConfig::gradients, placement,
           {cuts_state<&ShardConfig::gradients>, "none"},
           "the ranks that share the sums of gradients, likewise")
      .key(
          "optimizer", &ShardConfig::optimizer, placement,
          {cuts_state<&ShardConfig::optimizer>, "none"},
          "the ranks that share the optimizer's state, the fp32 masters and the moments, likewise; "
          "the numbers stay the same")
      .key("gradients_wire", &ShardConfig::gradients_wire, word_rule<WireFormat>({"int4"}),
           {several_ranks, "fp32"},
           "how gradients travel to their sums: as they are, or rounded, which halves the bytes; "
           "each sum is taken in fp32, and then rounded to travel on")
      .section();
}

}  // namespace tessera
