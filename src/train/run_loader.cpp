// A phase draws from some of the run's sources. The Loader of the phase sees these alone:
// RunData::drawn_positions() selects their positions. state() puts them back among the positions of
// all sources (RunData::with_drawn_positions()). Sources that the phase does not draw from stay
// where they were at the last seek().
//
// A new phase gets a new Loader. Each rank has the rows of its part of the data axis.

#include "train/run_loader.h"

#include "config/mesh_of.h"

namespace tessera {

RunLoader::RunLoader(const RunData& data, std::span<const RunPhase> phases,
                     const MeshRank& mesh_rank)
    : data_(data), phases_(phases), mesh_rank_(mesh_rank) {
  // Throws for a phase without data now, not only when that phase begins.
  for (size_t phase = 1; phase < phases.size(); ++phase) {
    const Loader possible(data.drawn_sources(phase), options(phase));
  }
  LoaderState start;
  start.sources.resize(data.all_sources(0).sources.size());
  seek(0, start);
}

LoaderOptions RunLoader::options(size_t phase) const {
  const RunConfig& config = phases_[phase].config;
  return {.rows = config.train.micro_batch,
          .part = data_rank(mesh_rank_),
          .parts = data_ranks(mesh_rank_.mesh),
          .vocabulary_size = config.model.vocabulary_size};
}

void RunLoader::seek(size_t phase, const LoaderState& state) {
  loader_.reset();  // before the next one is made, because both read ahead
  phase_ = phase;
  all_ = state;
  drawn_sources_ = data_.drawn_sources(phase);
  LoaderOptions wanted = options(phase);
  wanted.start = data_.drawn_positions(phase, state);
  loader_.emplace(drawn_sources_, wanted);
}

void RunLoader::enter(size_t phase) { seek(phase, data_.entry_position(phase, state())); }

std::vector<Batch> RunLoader::next_step() {
  return loader_->next(phases_[phase_].config.train.global_batch / rows());
}

LoaderState RunLoader::state() const {
  return data_.with_drawn_positions(phase_, all_, loader_->state());
}

int64_t RunLoader::rows() const {
  return phases_[phase_].config.train.micro_batch * data_ranks(mesh_rank_.mesh);
}

}  // namespace tessera
