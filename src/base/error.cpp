#include "base/error.h"

namespace tessera::detail {

void check_failed(const char* condition, const char* file, int line, const std::string& message) {
  throw InternalError(fmt::format("{} (invariant `{}` at {}:{}; this is a bug in tessera)", message,
                                  condition, file, line));
}

}  // namespace tessera::detail
