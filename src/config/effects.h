#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "config/key.h"
#include "config/phases.h"

namespace tessera {

// The conditions under which keys have an effect. Every key names a condition where it is declared
// (config/sections/), so no key can be added without one.
//
// A key without an effect is no error: one file serves one rank and many, the processor and a GPU,
// AdamW and Muon. If the user has set such a key, the program prints a line about it. validate()
// throws on keys that contradict each other.

/// The circumstances that decide whether a key has an effect.
struct Circumstances {
  const RunConfig& config;
  std::span<const RunPhase> phases;  ///< phases_of() the configuration
  const Mesh* mesh = nullptr;        ///< of the run; null: not known, so there may be several ranks
  size_t table = 0;                  ///< the number of the key's table, for a list of tables
};

// A condition is named after the circumstance that gives keys an effect. It returns why they have
// none, or an empty text (see Effect::why_none).
namespace effects {

/// For keys that always have an effect, and for keys that are an error without one.
std::string always(const Circumstances&);

// [run], [train] and [checkpoint]
std::string on_cuda(const Circumstances& here);
/// Of work in which a device's libraries choose an order: on cuda, and sums of ranks on any device.
std::string libraries_choose_orders(const Circumstances& here);
std::string on_a_device(const Circumstances& here);
std::string several_ranks(const Circumstances& here);
std::string traces_a_step(const Circumstances& here);
std::string stops_before_the_end(const Circumstances& here);
std::string evaluates(const Circumstances& here);
std::string recomputes(const Circumstances& here);
std::string recomputes_on_stages(const Circumstances& here);
std::string draws_weights(const Circumstances& here);
std::string keeps_a_checkpoint(const Circumstances& here);

// [model]
std::string mixture(const Circumstances& here);
std::string drops_tokens(const Circumstances& here);
std::string balance_loss(const Circumstances& here);
std::string balance_biases(const Circumstances& here);
std::string names_rope_scaling(const Circumstances& here);
std::string stretches_rope(const Circumstances& here);

// [parallel]
std::string expert_parallel(const Circumstances& here);
std::string bounds_rows(const Circumstances& here);
std::string counts_capacity(const Circumstances& here);
std::string sums_by_level(const Circumstances& here);
std::string overlaps(const Circumstances& here);
std::string sums_on_levels(const Circumstances& here);
std::string several_chunks(const Circumstances& here);
std::string takes_groups(const Circumstances& here);

// [shard]
std::string cuts_by(const ShardPlacement& placement, const Circumstances& here);
template <ShardPlacement ShardConfig::*Part>
std::string cuts_state(const Circumstances& here) {
  return cuts_by(here.config.shard.*Part, here);
}

std::string gathers_weights(const Circumstances& here);
std::string has_second_copies(const Circumstances& here);
std::string sends_integers(const Circumstances& here);
std::string shares_experts(const Circumstances& here);
std::string feeds_errors(const Circumstances& here);

// [data]
std::string several_sources(const Circumstances& here);
std::string token_files(const Circumstances& here);

// [optimizer]
std::string muon(const Circumstances& here);
std::string muon_over_tensor(const Circumstances& here);
std::string decays_weights(const Circumstances& here);
std::string clips(const Circumstances& here);
std::string clips_later(const Circumstances& here);

/// For keys of a section that apply only to phases without a value of their own.
template <auto PhaseField>
std::string lacking_in_a_phase(const Circumstances& here) {
  const std::vector<PhaseConfig>& phases = here.config.train.phases;
  const bool all_give_it = !phases.empty() && std::ranges::all_of(phases, [](const auto& phase) {
    return (phase.*PhaseField).has_value();
  });
  return all_give_it ? "each of [[train.phases]] has its own" : "";
}

// The course of the learning rate (see RunPhase): keys of [optimizer], and of a phase.
std::string peak_of_a_course(const Circumstances& here);
std::string minimum_of_a_course(const Circumstances& here);
std::string schedule_of_a_course(const Circumstances& here);
std::string warmup_of_a_course(const Circumstances& here);
std::string peak_of_this_phase(const Circumstances& here);
std::string minimum_of_this_phase(const Circumstances& here);
std::string schedule_of_this_phase(const Circumstances& here);

}  // namespace effects

/// Returns whether a phase begins a course of the learning rate whose only step has a rate of 0.
bool learns_nothing(const RunPhase& phase);

/// Returns why a key has no effect; empty if it has one, or if its value asks for nothing.
std::string why_without_effect(const Key& key, const Circumstances& here);

/// Returns a sentence for each reason why keys have no effect in a run on a mesh, with those that
/// were set. Null: the mesh is not known.
std::vector<std::string> without_effect(const RunConfig& config, const Mesh* mesh);

}  // namespace tessera
