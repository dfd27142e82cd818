#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "comm/mesh.h"
#include "hardware/hardware_file.h"
#include "program/program.h"
#include "program/target.h"

namespace tessera {

/// How long the nodes of programs take on a machine, calculated from the rates of a hardware file.
///
/// - A matrix product takes its FLOPs over the rate of the measured product that is nearest in
///   shape, of the same type, and of the same layout if one was measured. Nearest means the least
///   sum of the squared logarithms of the ratios of m, n and k.
/// - Other work takes the bytes of Cost over the bandwidth of main memory. FLOPs that the labels do
///   not say the shape of, as those of attention, take the peak's rate. A node takes as long as the
///   longer of products and bytes. A node of another lane than `compute` has no work: it takes the
///   time of its calls.
/// - A collective takes α + β · bytes. Both are fitted to the measured times of that collective
///   among ranks of one machine, or of several. If it was measured among another number of ranks, β
///   is that of the bus bandwidth (CollectiveRate::bus_bandwidth()). Times of all types of elements
///   are points of one line, because bytes decide.
/// - A program does not say whether its ranks are threads or processes. Its calls take the times
///   among processes, and those among threads only if the file has none of processes for that
///   collective.
class NodeSeconds {
 public:
  /// `origin` is the file of `hardware`, for errors. `target` is the machine that the programs are
  /// planned for. The file may lack rates that no program asks for.
  NodeSeconds(const Hardware& hardware, std::string origin, const Target& target);

  /// Returns the seconds of a node: of its work and of its calls. Throws Error that names the file
  /// and what it lacks.
  double operator()(const Program& program, const Node& node) const;
  /// Returns whether the file has times of collectives among ranks of one machine, if machines have
  /// several ranks of the mesh, and among ranks of several, if the mesh has several machines.
  bool knows_calls(const Mesh& mesh) const;
  /// Returns the seconds of the work alone, and those of the calls alone.
  double work(const Program& program, const Node& node) const;
  double calls(const Program& program, const Node& node) const;
  /// Returns the seconds of the messages of these values, one for each, to or from another rank.
  double messages(const Program& program, std::span<const Value> values, int peer) const;

  /// Returns the seconds of a collective over so many bytes, as CollectiveRate counts them, among
  /// threads of a process, or among processes of one machine or of several. Throws Error if it was
  /// not measured there. Processes of one machine take the times among threads if there are no
  /// others.
  double collective(Collective collective, double bytes, const CollectiveRanks& ranks) const;
  /// Returns the seconds of C = A B of this type and layout, with C [m, n] and sums of k terms.
  double product(DType dtype, GemmLayout layout, double m, double n, double k) const;

 private:
  /// A collective, what its ranks are, and whether they are of several machines.
  using Links = std::tuple<Collective, RankKind, bool>;
  /// The seconds of a call of `bytes` bytes: latency + bytes · per_byte.
  struct Line {
    int ranks = 1;
    double latency = 0;
    double per_byte = 0;
  };

  /// Returns a rate of the file, which `find` looks up. Errors name the file.
  double rate(const std::function<double(const Hardware&)>& find) const;
  const GemmRate& nearest(DType dtype, GemmLayout layout, double m, double n, double k) const;

  std::string origin_;
  Target target_;
  Hardware hardware_;
  std::map<Links, std::vector<Line>> lines_;
};

}  // namespace tessera
