#include "base/contradictions.h"

#include "base/error.h"
#include "base/text.h"

namespace tessera {

void Contradictions::require_none() const {
  if (found_.empty()) return;
  if (found_.size() == 1) throw Error(found_.front());
  throw Error("{} contradictions:\n  {}", found_.size(), join(found_, "\n  "));
}

}  // namespace tessera
