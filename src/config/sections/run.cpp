#include "base/threads.h"
#include "config/effects.h"
#include "config/sections.h"

namespace tessera {
namespace {

constexpr int64_t kMaxRankTimeout = 365LL * 24 * 3600;  // a year

}  // namespace

ConfigSection run_section() {
  using namespace effects;
  return SectionWriter("run", &RunConfig::run, "where and on what the run takes place")
      .key("directory", &RunSection::directory, TextRule{}, {always},
           "the folder that the run writes to")
      .key("device", &RunSection::device, word_rule<Device>(), {always},
           "what computes: the processor, a GPU of NVIDIA (\"cuda\") or of AMD (\"hip\"), or "
           "\"emulated\", a device that needs no hardware, for tests of kernels")
      .key("deterministic", &RunSection::deterministic, FlagRule{}, {libraries_choose_orders, true},
           "equal runs give equal bits on a device too; the gradient of attention on \"cuda\" then "
           "takes memory that grows with context squared, 2 bytes for each head and pair of tokens "
           "of "
           "a micro-batch, it computes pairs of different documents too, and ranks sum in the "
           "order of "
           "the ranks, which takes memory and more time than the sums of NCCL")
      .key("threads", &RunSection::threads, whole(0, kMostThreads), {always},
           "threads that compute, shared out over the ranks; 0: all usable cores")
      .key("bind_threads", &RunSection::bind_threads, FlagRule{}, {always},
           "each thread stays on a core of its own, where there are as many threads as cores")
      .key("graphs", &RunSection::graphs, FlagRule{}, {on_a_device, false},
           "on a device, work that repeats is captured once (a CUDA graph) and launched as a whole")
      .key("check_replicas", &RunSection::check_replicas, whole(0, kMaxSteps),
           {several_ranks, int64_t{0}},
           "every so many steps, and at the start, compare what several ranks must hold alike; 0: "
           "never")
      .key("rank_timeout", &RunSection::rank_timeout, whole(1, kMaxRankTimeout),
           {several_ranks, RunSection().rank_timeout},
           "seconds that a rank waits for another one before the run ends and names the call and "
           "the ranks that did not come; it must be longer than it takes to write a checkpoint")
      .key("check_calls", &RunSection::check_calls, FlagRule{}, {several_ranks, false},
           "processes compare each call that they make together before its bytes move, which takes "
           "a round of messages each time; for suspicions and tests")
      .key("trace_step", &RunSection::trace_step, whole(0, kMaxSteps), {traces_a_step, int64_t{0}},
           "the step whose timeline, of all ranks, is written to trace.json; 0: none")
      .key("tensorboard", &RunSection::tensorboard, FlagRule{}, {always},
           "write metrics as TensorBoard's events too, to tensorboard/")
      .key("csv", &RunSection::csv, FlagRule{}, {always},
           "write metrics as metrics.csv too; the sources of a mix stand in metrics.jsonl only")
      .key("hardware", &RunSection::hardware, TextRule{.may_be_empty = true}, {always},
           "the file of `tessera bench all`, whose matrix-product rate MFU refers to; empty: "
           "measured at the start")
      .key("tuned_products", &RunSection::tuned_products, TextRule{.may_be_empty = true}, {always},
           "the file of `tessera bench products`, whose algorithms matrix products on the device "
           "cuda use; empty: those that the library chooses")
      .section();
}

}  // namespace tessera
