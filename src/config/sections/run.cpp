#include "config/sections.h"

namespace tessera {

Section run_section() {
  return SectionWriter("run", &RunConfig::run, "where and on what the run takes place")
      .key("directory", &RunSection::directory, TextRule{}, "the folder that the run writes to")
      .key("device", &RunSection::device, TextRule{{"cpu"}, {"cuda"}}, "what computes")
      .key("threads", &RunSection::threads, whole(0, 4096), "threads of a rank; 0: all cores")
      .key("trace_step", &RunSection::trace_step, at_least(0),
           "the step whose timeline is written to trace.json; 0: none")
      .section();
}

}  // namespace tessera
