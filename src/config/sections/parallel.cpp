#include "comm/mesh.h"
#include "config/effects.h"
#include "config/sections.h"

namespace tessera {

ConfigSection parallel_section() {
  using namespace effects;
  return SectionWriter("parallel", &RunConfig::parallel,
                       "how the ranks share the work; data parallelism takes the ranks left over")
      .key("tensor", &ParallelSection::tensor, whole(1, kMostRanks), {always},
           "tensor-parallel ranks: they share each matrix, and the positions between matrices")
      .key("context", &ParallelSection::context, whole(1, kMostRanks), {always},
           "context-parallel ranks: they share the positions of each sequence")
      .key("pipeline", &ParallelSection::pipeline, whole(1, kMostRanks), {always},
           "pipeline stages; only 1 in this build")
      .key("expert", &ParallelSection::expert, whole(1, kMostRanks), {always},
           "ranks that share the experts of a layer, of the ranks of a stage")
      .key("expert_exchange", &ParallelSection::expert_exchange, word_rule<ExpertExchange>(),
           {expert_parallel, "auto"},
           "how tokens reach the experts of other ranks; \"auto\" takes what sends less")
      .key("expert_rows_bound", &ParallelSection::expert_rows_bound, between(0, kMostRanks),
           {bounds_rows, 0.0},
           "rows that a rank has memory for when it gets those of other ranks, over the rows of an "
           "even load; a step that brings more ends the run, after saving; 0: as many as can come")
      .key("capacity_tokens", &ParallelSection::capacity_tokens, word_rule<TokenSet>(),
           {counts_capacity, "micro_batch"},
           "the tokens that model.capacity_factor counts, and among which experts drop: those of "
           "the micro-batch of all ranks, as on one rank, or those of each rank")
      .key("node_ranks", &ParallelSection::node_ranks, whole(0, kMostRanks),
           {sums_by_node, int64_t{0}},
           "ranks of a node: gradients are summed within nodes first, then among them; 0: as the "
           "machines of the run's processes have them; the number of all ranks: in one step")
      .section();
}

}  // namespace tessera
