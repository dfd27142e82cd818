#include "model/families/families.h"

#include "base/error.h"

namespace tessera {

ModelConfig family_preset(Family family) {
  switch (family) {
    case Family::llama:
      return llama_family();
    case Family::mixtral:
      return mixtral_family();
    case Family::olmo:
      return olmo_family();
    case Family::olmoe:
      return olmoe_family();
    case Family::zaya:
      return zaya_family();
  }
  throw InternalError("a family that is none");
}

}  // namespace tessera
