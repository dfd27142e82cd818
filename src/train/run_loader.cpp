#include "train/run_loader.h"

#include "config/mesh_of.h"

namespace tessera {

RunLoader::RunLoader(const RunData& data, std::span<const RunPhase> phases, const MeshRank& place)
    : data_(data), phases_(phases), place_(place) {
  // Whether a phase has data is known at the start, not only when it begins.
  for (size_t phase = 1; phase < phases.size(); ++phase) {
    const Loader possible(data.drawn(phase), options(phase));
  }
  LoaderState start;
  start.sources.resize(data.at(0).sources.size());
  seek(0, start);
}

LoaderOptions RunLoader::options(size_t phase) const {
  const RunConfig& config = phases_[phase].config;
  return {.rows = config.train.micro_batch,
          .part = data_rank(place_),
          .parts = data_ranks(place_.mesh),
          .vocabulary_size = config.model.vocabulary_size};
}

void RunLoader::seek(size_t phase, const LoaderState& state) {
  loader_.reset();  // before the next: both read ahead
  phase_ = phase;
  all_ = state;
  drawn_ = data_.drawn(phase);
  LoaderOptions wanted = options(phase);
  wanted.start = data_.drawn_state(phase, state);
  loader_.emplace(drawn_, wanted);
}

void RunLoader::enter(size_t phase) { seek(phase, data_.entered(phase, state())); }

std::vector<Batch> RunLoader::next_step() {
  return loader_->next(phases_[phase_].config.train.global_batch / rows());
}

LoaderState RunLoader::state() const { return data_.with_drawn(phase_, all_, loader_->state()); }

int64_t RunLoader::rows() const {
  return phases_[phase_].config.train.micro_batch * data_ranks(place_.mesh);
}

}  // namespace tessera
