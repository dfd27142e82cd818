#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "config/run_config.h"
#include "engine/overlap.h"
#include "plan/predicted_step.h"
#include "plan/programs.h"

namespace tessera {

/// Returns the seconds of a node on a machine that stands for the accelerators of today: products
/// at 400 TFLOP/s in bf16 and a fourth of that otherwise, memory at 3 TB/s, and calls of other
/// ranks that take 10 µs and then send 50 GB/s. Orders go by these numbers if none were measured.
/// They depend on what a node costs on average over the ranks.
double nominal_seconds(const Program& program, const Node& node);
/// Returns the seconds of messages of these values on that machine.
double nominal_seconds_of_messages(const Program& program, std::span<const Value> values, int peer);

/// How the programs of a step are put into an order in which communication runs beside computing.
struct StepOverlap {
  OverlapOptions options;
  /// The seconds of the messages of values to or from a rank, as StepSeconds::message has them.
  std::function<double(const Program& program, std::span<const Value> values, int peer)> messages;
  std::string times;  ///< where the seconds come from, for people: "hardware.json"

  StepSeconds seconds() const { return {.node = options.seconds, .message = messages}; }
};

/// Returns the machine for which parallel.overlap_memory is counted: one thread of a processor with
/// AVX-512, and the run's kind of device. Ranks must find one order, so it cannot be their own.
Target overlap_target(Device device);

/// Returns how a configuration overlaps. The seconds are those of run.hardware if that file has
/// rates of collectives, and nominal ones otherwise. Throws Error if the file cannot be read.
StepOverlap step_overlap(const RunConfig& config, const Mesh& mesh);

/// Returns a sentence for people if run.hardware names a file that does not decide how several
/// ranks overlap, since it has no times of collectives; empty otherwise. Throws Error as
/// step_overlap().
std::string overlap_warning(const RunConfig& config, const Mesh& mesh);

/// How the programs of a stage overlap, as overlap() found it from those of its first rank.
struct StageOrders;

/// The orders that overlap() found for the stages of one mesh, with one configuration and its
/// options. Ranks that are threads of a process share one object: whichever rank of a stage asks
/// first finds the stage's orders, and the others wait and take them.
class FoundOrders {
 public:
  FoundOrders();
  ~FoundOrders();
  FoundOrders(const FoundOrders&) = delete;
  FoundOrders& operator=(const FoundOrders&) = delete;

  /// Returns the orders of a stage, from `find` if no call has had them yet. If `find` throws, so
  /// does this call, and the next one tries again.
  const StageOrders& of(int stage, const std::function<StageOrders()>& find);

 private:
  struct Slot;

  std::mutex mutex_;
  std::map<int, std::unique_ptr<Slot>> slots_;  // by stage
};

/// Puts the nodes of each chunk and of its evaluation into such an order, lets the lists of steps
/// begin the update's sums early, and lets the micro-batches of one stage with one chunk take turns
/// where that makes steps shorter (see overlapped_order(), begin_sums() and find_turns()). The most
/// bytes that plan_memory() finds in use at once, for the target of `options`, become at the most
/// `options.memory` more. If they would become more, micro-batches do not take turns, fewer sums
/// begin early, and less is moved.
/// Programs of one rank stay as they are. All ranks of a stage take the order of its first one,
/// since pieces of different sizes and links of different machines give ranks different numbers. So
/// the bound is that rank's. `programs_of` returns the programs of that rank, before they were
/// overlapped. All calls with one `found` have the same mesh, configuration and options.
void overlap(StepPrograms& programs, const OverlapOptions& options,
             const std::function<StepPrograms(int rank)>& programs_of, FoundOrders& found);

}  // namespace tessera
