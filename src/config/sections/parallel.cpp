#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "base/words.h"
#include "comm/mesh.h"
#include "config/effects.h"
#include "config/sections.h"
#include "pipeline/generate.h"

namespace tessera {
namespace {

constexpr std::string_view kBalanced = "balanced";

}  // namespace

template <>
struct Stored<StageLayers> {
  static ConfigValue to_value(const StageLayers& field) {
    return field.balanced ? ConfigValue(std::string(kBalanced)) : ConfigValue(field.counts);
  }
  static StageLayers to_field(const ConfigValue& value) {
    if (std::holds_alternative<std::string>(value)) return {.balanced = true};
    return {.counts = std::get<std::vector<int64_t>>(value)};
  }
};

template <>
struct Stored<ByteCount> {
  static ConfigValue to_value(const ByteCount& field) { return bytes_text(field.count); }
  static ByteCount to_field(const ConfigValue& value) {
    return {bytes_of_text(std::get<std::string>(value)).value()};
  }
};

ConfigSection parallel_section() {
  using namespace effects;
  return SectionWriter("parallel", &RunConfig::parallel,
                       "how the ranks share the work; data parallelism takes the ranks left over")
      .key("tensor", &ParallelSection::tensor, whole(1, kMostRanks), {always},
           "tensor-parallel ranks: they share each matrix, and the positions between matrices")
      .key("context", &ParallelSection::context, whole(1, kMostRanks), {always},
           "context-parallel ranks: they share the positions of each sequence")
      .key("pipeline", &ParallelSection::pipeline, whole(1, kMostRanks), {always},
           "pipeline stages: each has one chunk of the model's layers, or several")
      .key("virtual_stages", &ParallelSection::virtual_stages, whole(1, kMostRanks), {always},
           "chunks of the model on each stage; left out: 1, or 2 for the schedules \"zb-v\" and "
           "\"dualpipe-v\" of several stages")
      .key("schedule", &ParallelSection::schedule, TextRule{.may_be_empty = true},
           {several_chunks, ""},
           fmt::format("the order of passes on each stage: {}, or the path of a schedule file; "
                       "empty: 1f1b, or interleaved for several chunks a stage",
                       join(words_of<ScheduleKind>(), ", ")))
      .key("consecutive_micro_batches", &ParallelSection::consecutive_micro_batches,
           whole(0, kMaxGlobalBatch), {takes_groups, int64_t{0}},
           "micro-batches that a chunk takes one after the other, for the schedules gpipe and "
           "flexible; 0: all of a step for gpipe, as many as stages for flexible")
      .key("stage_layers", &ParallelSection::stage_layers,
           NumbersRule{.minimum = 0, .maximum = kMaxCount, .words = {std::string(kBalanced)}},
           {several_chunks, std::vector<int64_t>()},
           "layers of each chunk, in the model's order; only the first and the last chunk, which "
           "have the embedding and the head, may have 0; \"balanced\": as the costs of the parts "
           "ask for; empty: as even as possible, with one more on the chunks before the last one")
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
      .key("levels", &ParallelSection::levels, NumbersRule{.minimum = 1, .maximum = kMostRanks},
           {sums_by_level, std::vector<int64_t>()},
           "levels of the network, innermost first: [2, 4] for nodes of four pairs of ranks; "
           "gradients are summed within pairs, then within nodes, then among them; empty: as the "
           "run's processes are on packages and machines; only the number of all ranks: in one "
           "step")
      .key("overlap", &ParallelSection::overlap, FlagRule{}, {several_ranks, true},
           "put operations into an order in which communication runs beside computing, let two "
           "micro-batches take turns, and begin the sums of gradients within the last backward "
           "pass; the results keep their bits")
      .key("overlap_memory", &ParallelSection::overlap_memory, BytesRule{}, {overlaps, "512 MiB"},
           "bytes that may be in use for that, such as a second micro-batch's activations, beyond "
           "those of the order as it was written")
      .section();
}

}  // namespace tessera
