#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/in_process/world.h"
#include "comm/rank_groups.h"
#include "ops/host_target.h"
#include "support/program_run.h"
#include "support/rank_pieces.h"

namespace tessera::testing {

/// Writes the program of one rank: the builder's program knows the mesh and the rank. It may
/// differentiate, and marks and names the values that are read after the run.
using WriteProgram = std::function<void(Builder&)>;

/// What a rank has, before the run, of an input, a weight, a main gradient or a state. A tensor
/// that is not defined stands for zeros, which an input may not be.
using GiveTensor = std::function<Tensor(int rank, const ValueInfo& value)>;

/// Gives the ranks their parts of logical tensors, by the names of values (see part_of_rank()).
inline GiveTensor give_parts(const Mesh& mesh, std::map<std::string, Tensor> wholes) {
  return [mesh, wholes = std::move(wholes)](int rank, const ValueInfo& value) {
    const auto found = wholes.find(value.name);
    if (found == wholes.end()) return Tensor();
    return part_of_rank(mesh, value.spec.distribution, found->second, rank);
  };
}

/// A program run once, forward and backward, on every rank of a mesh. The ranks are threads.
class MeshRun {
 public:
  struct Options {
    Kernels kernels = Kernels::fast;
    std::chrono::milliseconds timeout = std::chrono::minutes(1);
  };

  /// Throws what the first rank that failed threw.
  MeshRun(const Mesh& mesh, const WriteProgram& write, const GiveTensor& give)
      : MeshRun(mesh, write, give, Options{}) {}
  MeshRun(const Mesh& mesh, const WriteProgram& write, const GiveTensor& give,
          const Options& options)
      : mesh_(mesh), world_(mesh.ranks(), options.timeout) {
    for (int rank = 0; rank < mesh.ranks(); ++rank) {
      ranks_.push_back(std::make_unique<Rank>(
          mesh, rank,
          [this, rank](std::span<const int> ranks, std::string_view lane) {
            return world_.group(rank, ranks, lane);
          },
          [this, rank](std::string_view why) { world_.end_work(rank, why); }));
    }
    run_ranks(world_, [&](int rank) { run(rank, write, give, options); });
  }

  const Mesh& mesh() const { return mesh_; }
  /// The program of a rank.
  const Program& program(int rank = 0) const { return of(rank).program; }

  /// What a rank has of an output, a weight, a main gradient or a state.
  const Tensor& value(int rank, const std::string& name) const {
    const auto found = of(rank).values.find(name);
    TESSERA_CHECK(found != of(rank).values.end(), "{} is nothing that is kept or an output", name);
    return found->second;
  }

  /// The logical tensor that the ranks have together (see whole_of_ranks()).
  Tensor whole(const std::string& name) const {
    std::vector<Tensor> parts;
    for (int rank = 0; rank < mesh_.ranks(); ++rank) parts.push_back(value(rank, name));
    const Program& program = of(0).program;
    return whole_of_ranks(mesh_, program.spec(program.find(name)).distribution, parts, name);
  }

  /// What a rank has got on a lane from the group of some axes, by collectives of one kind.
  const Traffic& traffic(int rank, std::span<const Axis> axes, Collective kind,
                         Lane lane = Lane::exchanges) const {
    return of(rank).groups.over(axes, word(lane)).traffic(kind);
  }
  /// The bytes that it has got from them, by collectives of any kind, as the transport counted.
  int64_t received_bytes(int rank, std::span<const Axis> axes, Lane lane) const {
    int64_t bytes = 0;
    for (size_t kind = 0; kind < kWordsOf<Collective>.size(); ++kind) {
      bytes += traffic(rank, axes, static_cast<Collective>(kind), lane).received_bytes;
    }
    return bytes;
  }
  /// The same, on all lanes.
  int64_t received_bytes(int rank, std::span<const Axis> axes) const {
    int64_t bytes = 0;
    for (size_t lane = 0; lane < kLanes; ++lane) {
      bytes += received_bytes(rank, axes, static_cast<Lane>(lane));
    }
    return bytes;
  }

 private:
  struct Rank {
    Rank(const Mesh& mesh, int rank, RankGroups::Join join,
         std::function<void(std::string_view why)> end_work)
        : program(mesh, rank), groups(mesh, rank, std::move(join), std::move(end_work)) {}
    Program program;
    RankGroups groups;
    std::map<std::string, Tensor> values;
  };

  Rank& of(int rank) const { return *ranks_[static_cast<size_t>(rank)]; }

  void run(int number, const WriteProgram& write, const GiveTensor& give, const Options& options) {
    Rank& rank = of(number);
    Builder builder(rank.program);
    write(builder);
    Runtime runtime(host_target(1, options.kernels));
    runtime.join(rank.groups);
    ProgramRun run(rank.program, runtime);
    const std::vector<ValueInfo>& values = rank.program.values();
    for (size_t id = 0; id < values.size(); ++id) {
      if (values[id].kind == ValueKind::computed) continue;
      const Tensor given = give(number, values[id]);
      if (given.defined()) run.bind(Value{static_cast<int>(id)}, copy_of(given));
    }
    run.poison();
    run.run();
    for (size_t id = 0; id < values.size(); ++id) {
      const Value value{static_cast<int>(id)};
      const ValueKind kind = values[id].kind;
      const bool kept = kind != ValueKind::computed && kind != ValueKind::input;
      if (!kept && !rank.program.is_output(value)) continue;
      rank.values.insert_or_assign(values[id].name, copy_of(run[value]));
    }
  }

  Mesh mesh_;
  World world_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace tessera::testing
