#include <string>

#include "comm/mesh.h"
#include "config/effects.h"
#include "config/sections.h"
#include "ops/collective/quantised_piece.h"

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
             "each of a group of them has a piece; weights are cut over no more ranks than "
             "gradients, and gradients over no more than the optimizer; ZeRO-1: optimizer = "
             "\"all\"; ZeRO-2: gradients too; ZeRO-3 (FSDP): weights too")
      .key("weights", &ShardConfig::weights, placement, {cuts_state<&ShardConfig::weights>, "none"},
           "the ranks that share the weights: none, all, those within a level of the network, or a "
           "number of neighbours")
      .key("gradients", &ShardConfig::gradients, placement,
           {cuts_state<&ShardConfig::gradients>, "none"},
           "the ranks that share the sums of gradients, likewise")
      .key("optimizer", &ShardConfig::optimizer, placement,
           {cuts_state<&ShardConfig::optimizer>, "none"},
           "the ranks that share the optimizer's state, the fp32 masters and the moments, "
           "likewise; the numbers stay the same")
      .key("secondary", &ShardConfig::secondary, placement, {has_second_copies, "none"},
           "the ranks that share a second copy of sharded weights, likewise: gathers of the "
           "backward pass stay among them (hpZ of ZeRO++)")
      .key("gather_again", &ShardConfig::gather_again, FlagRule{}, {gathers_weights, true},
           "gather sharded weights again in the backward pass; false: keep them from the forward "
           "pass")
      .key("weights_wire", &ShardConfig::weights_wire, word_rule<WireFormat>(),
           {gathers_weights, "fp32"},
           "how sharded weights travel to their use: as they are (fp32), or rounded to bf16 or to "
           "integers (qwZ of ZeRO++)")
      .key("secondary_wire", &ShardConfig::secondary_wire, word_rule<WireFormat>(),
           {has_second_copies, "fp32"}, "how the second copy is kept and travels, likewise")
      .key("gradients_wire", &ShardConfig::gradients_wire, word_rule<WireFormat>(),
           {several_ranks, "fp32"},
           "how gradients travel to their sums, which are taken in fp32: as they are, or rounded "
           "to bf16 or to integers in each hop (qgZ of ZeRO++)")
      .key("gradients_by_level", &ShardConfig::gradients_by_level, FlagRule{},
           {sums_on_levels, true},
           "sum gradients level by level of the network; false: among all ranks of a sum at once, "
           "in one hop")
      .key("expert_aware", &ShardConfig::expert_aware, FlagRule{}, {shares_experts, true},
           "cut the states of parameters outside the experts over the experts' ranks too (EPSO of "
           "Optimus); false: each group of experts' ranks keeps a copy, to compare with")
      .key("block", &ShardConfig::block, whole(2, QuantisedFormat::kMostBlock),
           {sends_integers, int64_t{256}},
           "the elements that share a scale where numbers travel as integers; even")
      .key("error_feedback", &ShardConfig::error_feedback, between(0, 1), {feeds_errors, 0.0},
           "0, or how much of the earlier rounding errors of gradients is kept when they are added "
           "to the next ones (LoCo: 0.8); errors begin anew after each checkpoint")
      .section();
}

}  // namespace tessera
