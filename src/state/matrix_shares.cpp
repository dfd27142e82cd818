#include "state/matrix_shares.h"

#include <algorithm>

#include "base/error.h"
#include "ops/update/newton_schulz.h"

namespace tessera {
namespace {

/// Returns the rank that does each piece of `shared` if no rank may have more work than `limit`.
/// Each piece goes to the first of its ranks that can take it. If none can, the result is empty.
std::vector<int> first_fit(std::span<const SharedWork> shared, std::vector<double> rank_work,
                           double limit) {
  std::vector<int> owners;
  for (const SharedWork& piece : shared) {
    const auto owner = std::ranges::find_if(piece.ranks, [&](int rank) {
      return rank_work[static_cast<size_t>(rank)] + piece.work <= limit;
    });
    if (owner == piece.ranks.end()) return {};
    rank_work[static_cast<size_t>(*owner)] += piece.work;
    owners.push_back(*owner);
  }
  return owners;
}

/// Returns the positions of the ranks that have elements of a cut matrix. A rank between two such
/// ranks may have none: cuts are rounded to a grain, so with many ranks two cuts may be the same.
std::vector<int> ranks_with_pieces(const MatrixChain::Cut& cut) {
  std::vector<int> positions;
  for (size_t position = 0; position < cut.pieces.size(); ++position) {
    if (cut.pieces[position].length > 0) positions.push_back(static_cast<int>(position));
  }
  return positions;
}

/// Adds parameters to chains, in the order of the memory, and then chooses the owners of their cut
/// matrices. A parameter is one matrix, or a stack of matrices of the same shape.
class ChainMaker {
 public:
  ChainMaker(const StateShard& shard, std::span<const ParameterSpec> specs, MuonSplit split)
      : shard_(shard), specs_(specs), split_(split) {}

  void add(size_t parameter, MatrixChain& chain) {
    const ParameterSpec& spec = specs_[parameter];
    const int64_t matrix_elements = spec.piece_shape.dim(-2) * spec.piece_shape.dim(-1);
    const std::vector<int>& ranks = chain.ranks;
    chain.work.resize(ranks.size());
    MatrixChain::Run run{.parameter = parameter};
    std::vector<MatrixChain::Cut> cuts;
    const std::vector<ElementRun> held_runs = shard_.held_by_sharers(parameter);
    for (size_t position = 0; position < ranks.size(); ++position) {
      const ElementRun& held = held_runs[position];
      const int64_t end = held.begin + held.length;
      const int64_t first = (held.begin + matrix_elements - 1) / matrix_elements;
      const int64_t count = std::max<int64_t>(0, end / matrix_elements - first);
      run.counts.push_back(count);
      chain.work[position] += static_cast<double>(count) * work_of(spec);
      if (ranks[position] == shard_.rank()) {
        chain.position = static_cast<int>(position);
        run.first_matrix = first;
        run.count = count;
      }
      // Notes the pieces of matrices that the rank has in part, and passes over whole matrices.
      for (int64_t begin = held.begin; begin < end;) {
        const int64_t matrix = begin / matrix_elements;
        const int64_t length = std::min(end, (matrix + 1) * matrix_elements) - begin;
        if (length < matrix_elements) {
          if (cuts.empty() || cuts.back().matrix != matrix) {
            cuts.push_back({parameter, matrix, std::vector<ElementRun>(ranks.size()), 0});
          }
          cuts.back().pieces[position] = {begin - matrix * matrix_elements, length};
        }
        begin = length < matrix_elements ? begin + length : end / matrix_elements * matrix_elements;
      }
    }
    if (run.count > 0) chain.runs.push_back(std::move(run));
    chain.cuts.insert(chain.cuts.end(), cuts.begin(), cuts.end());
  }

  void choose_owners(MatrixChain& chain) const {
    std::vector<SharedWork> shared;
    for (const MatrixChain::Cut& cut : chain.cuts) {
      shared.push_back({ranks_with_pieces(cut), work_of(specs_[cut.parameter])});
    }
    const std::vector<int> owners = assign_evenly(shared, chain.work);
    for (size_t i = 0; i < owners.size(); ++i) chain.cuts[i].owner = owners[i];
  }

 private:
  /// Returns the FLOPs of one step of Newton-Schulz for one matrix, or with MuonSplit::blocks for a
  /// rank's block of it.
  double work_of(const ParameterSpec& spec) const {
    const Shape& shape = split_ == MuonSplit::blocks ? spec.piece_shape : spec.shape;
    return newton_schulz_step_flops(shape.dim(-2), shape.dim(-1));
  }

  const StateShard& shard_;
  std::span<const ParameterSpec> specs_;
  MuonSplit split_;
};

}  // namespace

std::vector<int> assign_evenly(std::span<const SharedWork> shared, std::vector<double>& rank_work) {
  if (shared.empty()) return {};
  // Bisection finds the least limit that is enough: 60 halvings exhaust the digits of a double. The
  // first limit is enough even if one rank gets all pieces.
  double enough = 0, largest_work = 0;
  for (const double work : rank_work) largest_work = std::max(largest_work, work);
  for (const SharedWork& piece : shared) enough += piece.work;
  double too_little = 0;
  enough += largest_work;
  std::vector<int> owners = first_fit(shared, rank_work, enough);
  for (int halving = 0; halving < 60; ++halving) {
    const double limit = (too_little + enough) / 2;
    std::vector<int> found = first_fit(shared, rank_work, limit);
    (found.empty() ? too_little : enough) = limit;
    if (!found.empty()) owners = std::move(found);
  }
  TESSERA_CHECK(owners.size() == shared.size(), "{} owners of {} matrices", owners.size(),
                shared.size());
  for (size_t i = 0; i < shared.size(); ++i)
    rank_work[static_cast<size_t>(owners[i])] += shared[i].work;
  return owners;
}

std::vector<MatrixChain> matrix_chains(const StateShard& shard,
                                       std::span<const ParameterSpec> specs,
                                       std::span<const size_t> parameters, MuonSplit split) {
  std::vector<MatrixChain> chains;
  std::vector<size_t> units;  // by chain: the first of its units
  ChainMaker maker(shard, specs, split);
  for (const size_t parameter : parameters) {
    const auto unit = static_cast<size_t>(specs[parameter].unit_index);
    size_t chain = 0;
    while (chain < units.size() && !shard.cut_together(units[chain], unit)) ++chain;
    if (chain == units.size()) {
      units.push_back(unit);
      chains.push_back({.first_parameter = parameter,
                        .axes = shard.cut(unit).axes,
                        .ranks = shard.sharers(parameter)});
    }
    maker.add(parameter, chains[chain]);
  }
  for (MatrixChain& chain : chains) maker.choose_owners(chain);
  return chains;
}

}  // namespace tessera
