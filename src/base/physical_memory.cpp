#include "base/physical_memory.h"

#include <unistd.h>

namespace tessera {

int64_t physical_memory() { return ::sysconf(_SC_PHYS_PAGES) * ::sysconf(_SC_PAGESIZE); }

}  // namespace tessera
