#include "comm/tcp/plane_process.h"

#include <cstdio>
#include <cstdlib>

namespace tessera {

void PlaneProcess::abort(int status) {
  end_others(status);
  std::fflush(nullptr);
  std::_Exit(status);  // without destructors, which would wait for ranks that have not come
}

}  // namespace tessera
