#include "engine/touched_memory.h"

#include "program/is_kept.h"

namespace tessera {

TouchedMemory<KeptName> touched_kept_values(const Program& program, const Node& node) {
  const KeptName not_kept{ValueKind::computed, ""};
  TouchedMemory<KeptName> touched(program, node, [&](Value base) {
    const ValueInfo& info = program.info(base);
    return is_kept(info) ? KeptName{info.kind, info.name} : not_kept;
  });
  touched.written.erase(not_kept);
  touched.all.erase(not_kept);
  return touched;
}

}  // namespace tessera
